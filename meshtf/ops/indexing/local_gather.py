"""Local lookups: rows of a table by index, and their gradient, sums of rows by index.

An index outside of the table reads zeros and adds nothing, on every device alike. Dimensions have three roles. `batch`
are those that indices and table share, `free` those of indices alone, and `rest` those of the table alone. A lookup of
ids [batch, length] in a table [batch, vocab, d_model] gives [batch, length, d_model], with batch, length and d_model in
these roles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.graph.dtypes import sum_dtype
from meshtf.layout import Axes
from meshtf.planning.local_work.kept_or_zeros import kept_or_zeros
from meshtf.planning.plan import Core
from meshtf.thresholds import OPERATION_BYTES


@dataclasses.dataclass(frozen=True, slots=True)
class LookupShapes:
    """The orders of dimensions in which a lookup is a lookup of rows."""

    batch: Shape
    table: Shape
    indices: Shape
    rows: Shape

    @classmethod
    def of(cls, table: Shape, indices: Shape, dim: Dimension) -> LookupShapes:
        """The orders [batch, dim, rest], [batch, free] and [batch, free, rest] for a table and its indices."""
        batch = [d for d in indices if table.has(d)]
        free = [d for d in indices if not table.has(d)]
        rest = [d for d in table if d.name != dim.name and not indices.has(d)]
        return cls(Shape(batch), Shape([*batch, dim, *rest]), Shape(batch + free), Shape(batch + free + rest))


def rows_at(table: tf.Tensor, indices: tf.Tensor, batch_ndims: int) -> tf.Tensor:
    """Rows [batch, free, rest] of a table [batch, n, rest], by indices [batch, free]."""
    shape = table.shape.as_list()
    size = indices.shape.as_list() + shape[batch_ndims + 1 :]
    if not math.prod(shape):
        return tf.zeros(size, table.dtype)
    leading = [*([math.prod(shape[:batch_ndims])] if batch_ndims else []), shape[batch_ndims]]
    # XLA's kernel takes rows of one dimension.
    flat = _reshaped(table, [*leading, math.prod(shape[batch_ndims + 1 :])])
    rows = tf.gather_nd(flat, _coordinates(indices, batch_ndims), bad_indices_policy="IGNORE")
    return _reshaped(rows, size)


def rows_in_memory_at(table: tf.Tensor, indices: tf.Tensor, batch_ndims: int) -> tf.Tensor:
    """The rows of `rows_at`, on processors: one long row is a view of the table, and not a copy."""
    shape, size = table.shape.as_list(), indices.shape.as_list()
    rest = shape[batch_ndims + 1 :]
    length, count = math.prod(rest), shape[batch_ndims]
    if math.prod(size) != 1 or not count or length * table.dtype.size < OPERATION_BYTES:
        return rows_at(table, indices, batch_ndims)
    index = _reshaped(indices, [])
    begin = tf.stack([tf.clip_by_value(index, 0, count - 1), 0])
    row = tf.slice(_reshaped(table, [count, length]), begin, [1, length])
    is_inside = tf.logical_and(index >= 0, index < count)
    return _reshaped(kept_or_zeros(row, is_inside), [*size, *rest])


def sums_at(updates: tf.Tensor, indices: tf.Tensor, batch_ndims: int, n: int) -> tf.Tensor:
    """[batch, n, rest]: for each index, the sum of the rows of `updates` [batch, free, rest] that have it.

    Rows are always added in the order of the updates, even by several threads. Narrow floats are summed in float32.
    """
    shape, where = updates.shape.as_list(), _coordinates(indices, batch_ndims)
    rest = shape[indices.shape.rank :]
    flat = _reshaped(updates, where.shape.as_list()[:-1] + rest)
    dtype = sum_dtype(updates.dtype)
    size = [*shape[:batch_ndims], n, *rest]
    if not math.prod(size):
        return tf.zeros(size, updates.dtype)
    total = tf.constant(_flat_batch(size, batch_ndims), indices.dtype)
    sums = tf.scatter_nd(where, _cast(flat, dtype), total, bad_indices_policy="IGNORE")
    return _reshaped(_cast(sums, updates.dtype), size)


def shifted(core: Core, indices: tf.Tensor, axes: Axes, n: int) -> tf.Tensor:
    """Indices into this core's part of `n` elements, of a dimension that is split over `axes`."""
    if not axes:
        return indices
    return indices - tf.cast(core.coordinate(axes) * n, indices.dtype)


def _coordinates(indices: tf.Tensor, batch_ndims: int) -> tf.Tensor:
    """Indices as [..., 1], of at least two dimensions. Under a batch, its position comes before each index.

    The result is then [product of the batch, product of the others, 2].
    """
    shape = indices.shape.as_list()
    if not batch_ndims:
        return tf.reshape(indices, np.array([*(shape or [1]), 1], np.int32))  # scatter_nd takes no single index
    size = [math.prod(shape[:batch_ndims]), math.prod(shape[batch_ndims:])]
    positions = tf.expand_dims(tf.range(size[0], dtype=indices.dtype), 1)
    if size[1] != 1:
        positions = tf.broadcast_to(positions, np.array(size, np.int32))
    return tf.stack([positions, _reshaped(indices, size)], axis=-1)


def _flat_batch(shape: Sequence[int], batch_ndims: int) -> list[int]:
    return [math.prod(shape[:batch_ndims]), *shape[batch_ndims:]] if batch_ndims else list(shape)


def _reshaped(x: tf.Tensor, size: Sequence[int]) -> tf.Tensor:
    return x if x.shape.as_list() == list(size) else tf.reshape(x, np.array(size, np.int32))


def _cast(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return x if x.dtype == dtype else tf.cast(x, dtype)
