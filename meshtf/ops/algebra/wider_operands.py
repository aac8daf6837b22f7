"""Operands of products that a processor computes in a wider dtype than they have."""

from __future__ import annotations

import tensorflow as tf


def wider_operands(a: tf.Tensor, b: tf.Tensor, dtype: tf.DType) -> tuple[tf.Tensor, tf.Tensor]:
    """Both in another dtype, each as soon as the other is there.

    TensorFlow would make each as soon as it is there itself: those of all weights as the step begins; and it would keep
    what a product of the forward pass reads for that of the gradient, as a second copy of activations, twice as large.
    """
    return _behind(b, a, dtype), _behind(a, b, dtype)


def _behind(other: tf.Tensor, x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    if x.dtype == dtype:
        return x
    with tf.control_dependencies([other]):
        return tf.cast(x, dtype)
