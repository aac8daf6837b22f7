"""Integers that wrap, computed so that XLA makes no more of them than is true.

XLA takes `x * x` and `abs(x)` for non-negative, of integers too: `x * x < 0` is false for it, `abs(x * x)` is `x * x`,
and `x * x // 4` is a shift. A product that overflows is negative all the same, and so is `abs` of the lowest number.
It assumes nothing of a bitcast, nor of a maximum of numbers of any sign.
"""

from __future__ import annotations

import tensorflow as tf

_UNSIGNED = {tf.int8: tf.uint8, tf.int16: tf.uint16, tf.int32: tf.uint32, tf.int64: tf.uint64}


def product(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x * y of any dtype; of signed integers by unsigned ones, which have the same bits."""
    unsigned = _UNSIGNED.get(x.dtype)
    if unsigned is None:
        return tf.multiply(x, y)
    return tf.bitcast(tf.multiply(tf.bitcast(x, unsigned), tf.bitcast(y, unsigned)), x.dtype)


def square(x: tf.Tensor) -> tf.Tensor:
    """x * x of integers."""
    return product(x, x)


def power(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x to the y of signed integers. XLA makes `x * x` of the power of 2; of other powers no such product."""
    return tf.where(tf.equal(y, 2), product(x, x), tf.pow(x, y))


def absolute(x: tf.Tensor) -> tf.Tensor:
    """The absolute value of signed integers."""
    return tf.maximum(x, tf.negative(x))


def product_along(x: tf.Tensor, axes: list[int]) -> tf.Tensor:
    """The product of all elements along some dimensions, of any dtype."""
    unsigned = _UNSIGNED.get(x.dtype)
    if unsigned is None:
        return tf.reduce_prod(x, axes)
    return tf.bitcast(tf.reduce_prod(tf.bitcast(x, unsigned), axes), x.dtype)
