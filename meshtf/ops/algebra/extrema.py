"""Maxima and minima that do not hang on the layout: of 0 and -0, which are equal, the result is 0.

TensorFlow takes either, as it happens to compare them with a vector of others or by themselves, at a slice's end.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def without_negative_zeros(x: tf.Tensor) -> tf.Tensor:
    """x with 0 in place of -0. (XLA takes x + 0 for x.)"""
    return tf.where(tf.equal(x, 0), tf.zeros([], x.dtype), x) if x.dtype.is_floating else x


def maximum(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """The larger of two."""
    return without_negative_zeros(tf.maximum(x, y))


def minimum(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """The smaller of two."""
    return without_negative_zeros(tf.minimum(x, y))


def largest(x: tf.Tensor, axes: int | Sequence[int]) -> tf.Tensor:
    """The largest element along some dimensions."""
    return without_negative_zeros(tf.reduce_max(x, axes))


def smallest(x: tf.Tensor, axes: int | Sequence[int]) -> tf.Tensor:
    """The smallest element along some dimensions."""
    return without_negative_zeros(tf.reduce_min(x, axes))
