"""Converts the operands of products that a processor computes in a wider dtype."""

from __future__ import annotations

import tensorflow as tf


def wider_operands(a: tf.Tensor, b: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Both operands in another dtype, each converted only when the other one is ready.

    Otherwise TensorFlow would convert each operand as soon as it is ready, and so all weights when the step begins. It
    would also keep the forward pass's copy for the gradient: a second copy of activations, twice as large.
    """
    return _cast_after(b, a, dtype), _cast_after(a, b, dtype)


def _cast_after(other: tf.Tensor, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if x.dtype == dtype:
        return x
    with tf.control_dependencies([other]):
        return tf.cast(x, dtype)
