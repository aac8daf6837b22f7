"""Writes rows of a tensor in its own memory, on processors.

TensorFlow's kernel writes element by element, and its time does not depend on their width: four numbers of 4 bytes take
as long as four of 16. So rows are written as elements of the widest dtype, with the same bits.
"""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf.thresholds import WIDE_ROW_BYTES

_WIDEST = tf.complex128


def with_rows(x: tf.Tensor, where: tf.Tensor | list[tf.Tensor], rows: tf.Tensor) -> tf.Tensor:
    """Writes rows [m, ..] into x [n, ..] at the places int32 [m] of its first dimension. Nothing else may use x's
    memory."""
    size, dtype = x.shape.as_list(), x.dtype
    together, length = _WIDEST.size // dtype.size, math.prod(size[1:])
    if dtype == tf.bool or together == 1 or length % together or length * dtype.size < WIDE_ROW_BYTES:
        return tf.raw_ops.InplaceUpdate(x=x, i=where, v=rows)
    wide_x, wide_rows = (tf.bitcast(tf.reshape(t, [-1, length // together, together]), _WIDEST) for t in (x, rows))
    return tf.reshape(tf.bitcast(tf.raw_ops.InplaceUpdate(x=wide_x, i=where, v=wide_rows), dtype), size)
