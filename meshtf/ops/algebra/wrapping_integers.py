"""Integers that wrap, computed so that XLA assumes nothing false about them.

XLA assumes that `x * x` and `abs(x)` are not negative, for integers too. For XLA, `x * x < 0` is false, `abs(x * x)` is
`x * x`, and `x * x // 4` is a shift. But a product that overflows may be negative (int8: 12 * 12 is -112), and so is
`abs` of the lowest number. XLA assumes nothing about a bitcast, nor about a maximum of signed numbers.
"""

from __future__ import annotations

import tensorflow as tf

_UNSIGNED = {tf.int8: tf.uint8, tf.int16: tf.uint16, tf.int32: tf.uint32, tf.int64: tf.uint64}


def product(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x * y, for any dtype. Signed integers are multiplied as unsigned ones, which give the same bits."""
    unsigned = _UNSIGNED.get(x.dtype)
    if unsigned is None:
        return tf.multiply(x, y)
    return tf.bitcast(tf.multiply(tf.bitcast(x, unsigned), tf.bitcast(y, unsigned)), x.dtype)


def square(x: tf.Tensor) -> tf.Tensor:
    """x * x of integers."""
    return product(x, x)


def power(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """x to the power y, for signed integers. XLA turns only the power 2 into the product `x * x`."""
    return tf.where(tf.equal(y, 2), product(x, x), tf.pow(x, y))


def absolute(x: tf.Tensor) -> tf.Tensor:
    """The absolute value of signed integers."""
    return tf.maximum(x, tf.negative(x))


def product_along(x: tf.Tensor, axes: list[int]) -> tf.Tensor:
    """The product of all elements along some dimensions, for any dtype."""
    unsigned = _UNSIGNED.get(x.dtype)
    if unsigned is None:
        return tf.reduce_prod(x, axes)
    return tf.bitcast(tf.reduce_prod(tf.bitcast(x, unsigned), axes), x.dtype)
