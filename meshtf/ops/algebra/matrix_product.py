"""Products of matrices, in the dtype and with the kernel that the device of a core has for them."""

from __future__ import annotations

import tensorflow as tf

from meshtf.ops.algebra import wrapping_integers
from meshtf.ops.algebra.wider_operands import wider_operands
from meshtf.planning.plan import Core


def matrix_product(
    core: Core, a: tf.Tensor, b: tf.Tensor, *, transpose_a: bool = False, transpose_b: bool = False
) -> tf.Tensor:
    """The products of matrices a [..., m, k] and b [..., k, n], in `core.product_dtype`.

    With `transpose_a` matrices of a are [k, m], and with `transpose_b` those of b are [n, k].
    """
    dtype = core.product_dtype(a.dtype)
    a, b = wider_operands(a, b, dtype)
    if core.multiplies_matrices(dtype):
        return tf.linalg.matmul(a, b, transpose_a=transpose_a, transpose_b=transpose_b)
    # A compiler makes one loop of this. No array [..., m, n, k] is written.
    rows = tf.linalg.matrix_transpose(a) if transpose_a else a
    columns = b if transpose_b else tf.linalg.matrix_transpose(b)
    terms = wrapping_integers.product(rows[..., :, tf.newaxis, :], columns[..., tf.newaxis, :, :])
    return tf.reduce_sum(terms, -1)
