"""Chooses the dtype in which this machine's processor multiplies matrices, so that a sum of products is rounded once.

If the processor multiplies bfloat16 itself, TensorFlow sums a bfloat16 product in float32 and rounds it to nearest. On
other processors it truncates the sum. Each element is then too small by 0.3 % on average, in every training step.
"""

from __future__ import annotations

import functools

import tensorflow as tf

_TERMS = 1031
"""The number of ones to sum. It is between the bfloat16 numbers 1024 and 1032, and nearer to 1032, so rounding to
nearest and truncating differ. A sum in bfloat16 would stop at 256."""


def product_dtype(dtype: tf.DType) -> tf.DType:
    """The dtype in which the processor multiplies matrices of `dtype`.

    It is float32 for bfloat16 on processors that do not round bfloat16 products to nearest, else `dtype`.
    """
    return tf.float32 if dtype == tf.bfloat16 and not _rounds_bfloat16_products() else dtype


@functools.cache
def _rounds_bfloat16_products() -> bool:
    """Whether TensorFlow rounds bfloat16 products to nearest here.

    It multiplies two matrices to find out, once per process, since no list tells how TensorFlow uses each processor.
    The answer is the same in every process on one machine.
    """
    with tf.init_scope(), tf.device("/device:CPU:0"):
        ones = tf.ones([2, _TERMS], tf.bfloat16)
        right = tf.cast(float(_TERMS), tf.bfloat16)
        products = [_times_itself(ones), _times_itself(ones[None])]
        return all(bool(tf.reduce_all(tf.equal(product, right))) for product in products)


@tf.function(autograph=False)
def _times_itself(x: tf.Tensor) -> tf.Tensor:
    return tf.linalg.matmul(x, x, transpose_b=True)
