"""Products of rows in groups where shapes may depend on values: each group multiplies only its own rows.

A group's rows are a part of the rows' memory, and its product is written to a part of the result's memory. A loop runs
over the groups, so a program does not grow with their number. It skips empty groups.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from meshtf.graph.dtypes import sum_dtype
from meshtf.ops.algebra.matrix_product import matrix_product
from meshtf.ops.grouped_products._row_groups import RowGroups
from meshtf.planning.local_work.rows_in_place import with_rows
from meshtf.planning.plan import Core


def products(core: Core, x: tf.Tensor, w: tf.Tensor, groups: RowGroups, *, transpose_w: bool) -> tf.Tensor:
    """[b, r, m]: each row of x [b, r, k] times its group's matrix of w [n, k, m]; zeros for a row in no group.

    With `transpose_w` matrices are [m, k].
    """
    (b, r, k), m = x.shape.as_list(), w.shape[1 if transpose_w else 2]
    flat, table = tf.reshape(x, [b * r, k]), groups.table

    def write(y: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        matrix = tf.reshape(tf.slice(w, tf.stack([number, 0, 0]), [1, *w.shape[1:]]), w.shape[1:])
        made = matrix_product(core, _rows(flat, begin, end), matrix, transpose_b=transpose_w)
        return with_rows(y, tf.range(begin, end), tf.cast(made, x.dtype))

    # Nearly all rows are written by the groups. Zeros go only to rows in no group.
    y = tf.raw_ops.Empty(shape=[b * r, m], dtype=x.dtype)
    return tf.reshape(_over_groups(table, _with_zeros(y, _rows_in_no_group(groups)), write), [b, r, m])


def sums(core: Core, x: tf.Tensor, y: tf.Tensor, groups: RowGroups) -> tf.Tensor:
    """[n, k, m]: for each matrix, the sum of the products of rows of x [b, r, k] and y [b, r, m], over its groups'
    rows.

    Sums over several tables are float32 if the rows are narrower.
    """
    (b, r, k), m, n = x.shape.as_list(), y.shape[2], groups.num_matrices
    total = sum_dtype(x.dtype) if groups.is_shared else x.dtype
    flat, beside, table = tf.reshape(x, [b * r, k]), tf.reshape(y, [b * r, m]), groups.table

    def write(sums: tf.Tensor, begin: tf.Tensor, end: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
        own, others = _rows(flat, begin, end), _rows(beside, begin, end)
        made = tf.cast(matrix_product(core, own, others, transpose_a=True), total)
        if groups.is_shared:  # several tables add their parts to one matrix
            made += tf.reshape(tf.slice(sums, tf.stack([number, 0, 0]), [1, k, m]), [k, m])
        return with_rows(sums, tf.reshape(number, [1]), made[tf.newaxis])

    result = tf.raw_ops.Empty(shape=[n, k, m], dtype=total, init=groups.is_shared)
    if not groups.is_shared:
        result = _with_zeros(result, tf.boolean_mask(table[:, 2], tf.equal(table[:, 0], table[:, 1])))
    return tf.cast(_over_groups(table, result, write), x.dtype)


def _over_groups(table: tf.Tensor, y: tf.Tensor, write: Callable[..., tf.Tensor]) -> tf.Tensor:
    """y after `write` for each group that has rows.

    `write` gets y, the group's first row, the row after its last, and the number of its matrix.
    """
    table = tf.boolean_mask(table, table[:, 0] < table[:, 1])
    count = tf.shape(table)[0]
    return tf.while_loop(
        lambda i, _: i < count, lambda i, y: (i + 1, write(y, *tf.unstack(table[i]))), (tf.constant(0), y)
    )[1]


def _rows(x: tf.Tensor, begin: tf.Tensor, end: tf.Tensor) -> tf.Tensor:
    return tf.slice(x, tf.stack([begin, 0]), tf.stack([end - begin, x.shape[1]]))


def _rows_in_no_group(groups: RowGroups) -> tf.Tensor:
    """The rows of all tables that come before a table's first group or after its last."""
    rows, first, sizes = tf.range(groups.num_rows), groups.starts[:, :1], groups.sizes[:, -1:]
    outside = tf.logical_or(rows < first, rows >= groups.starts[:, -1:] + sizes)
    return tf.cast(tf.reshape(tf.where(tf.reshape(outside, [-1])), [-1]), tf.int32)


def _with_zeros(x: tf.Tensor, where: tf.Tensor) -> tf.Tensor:
    """x with zeros at these places of its first dimension, written in its own memory."""
    zeros = tf.zeros(tf.concat([tf.shape(where), x.shape[1:]], 0), x.dtype)
    return with_rows(x, where, zeros)
