"""Maxima and minima that do not depend on the compiler, nor on the layout.

A result is NaN where a term is NaN. TensorFlow's kernels keep a NaN. XLA on a CPU takes the first of two numbers unless
the second is larger, and chooses which one is the first. So it loses some NaNs, and in a reduction it loses all.

The maximum and the minimum of 0 and -0, which are equal, are 0. TensorFlow may return either: this depends on whether
it compares them in a vector with others, or alone at the end of a slice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf


def maximum(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    """The larger, element by element."""
    return _of_two(x1, x2, tf.maximum(x1, x2))


def minimum(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    """The smaller, element by element."""
    return _of_two(x1, x2, tf.minimum(x1, x2))


def maximum_with_number(x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The larger of each element and a number that is not NaN, which XLA takes as the second, and so keeps NaNs."""
    return without_negative_zeros(tf.maximum(x, number))


def minimum_with_number(x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    """The smaller of each element and a number that is not NaN."""
    return without_negative_zeros(tf.minimum(x, number))


def reduce_max(x: tf.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> tf.Tensor:
    """The largest along some axes."""
    return _reduced(tf.reduce_max, x, axis, keepdims)


def reduce_min(x: tf.Tensor, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> tf.Tensor:
    """The smallest along some axes."""
    return _reduced(tf.reduce_min, x, axis, keepdims)


def without_negative_zeros(x: tf.Tensor) -> tf.Tensor:
    """x with -0 replaced by 0. (XLA simplifies x + 0 to x.)"""
    return tf.where(tf.equal(x, 0), tf.zeros([], x.dtype), x) if x.dtype.is_floating else x


def _of_two(x1: tf.Tensor, x2: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
    if not chosen.dtype.is_floating:
        return chosen
    has_nan = tf.math.is_nan(x1) | tf.math.is_nan(x2)
    return tf.where(has_nan, tf.constant(math.nan, chosen.dtype), without_negative_zeros(chosen))


def _reduced(
    choose: Callable[..., tf.Tensor], x: tf.Tensor, axis: int | Sequence[int] | None, keepdims: bool
) -> tf.Tensor:
    chosen = choose(x, axis, keepdims)
    if not x.dtype.is_floating:
        return chosen
    has_nan = tf.reduce_any(tf.math.is_nan(x), axis, keepdims)
    return tf.where(has_nan, tf.constant(math.nan, x.dtype), without_negative_zeros(chosen))
