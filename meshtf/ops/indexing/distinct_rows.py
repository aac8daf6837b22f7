"""Local work on ids: the distinct ones, the sums of rows that have one id, and requests to the cores that hold them.

An id that is negative, or not below the number of rows, names no row.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.ops.indexing.local_gather import sums_at

NOWHERE = -1
"""The id of a place that requests no row."""


@dataclasses.dataclass(frozen=True, slots=True)
class DistinctIds:
    """The distinct ids among n.

    Attributes:
      ids: [n], each of them once and in ascending order, then NOWHERE.
      is_row: bool [n], whether there is an id at this place.
      places: int32 [n], the place of each of the n ids among the distinct ones.
    """

    ids: tf.Tensor
    is_row: tf.Tensor
    places: tf.Tensor

    @classmethod
    def of(cls, ids: tf.Tensor, num_rows: int) -> DistinctIds:
        """The distinct ones among ids [n], n > 0. Ids that name no row share one place after the others."""
        known = tf.where(tf.logical_and(ids >= 0, ids < num_rows), ids, tf.constant(num_rows, ids.dtype))
        order = tf.argsort(known, stable=True)
        values = tf.gather(known, order)
        is_new = tf.concat([[True], tf.not_equal(values[1:], values[:-1])], 0)
        numbers = tf.cumsum(tf.cast(is_new, tf.int32)) - 1
        count = ids.shape[0]
        places = tf.scatter_nd(order[:, tf.newaxis], numbers, [count])
        nothing = tf.fill([count], tf.constant(num_rows, ids.dtype))
        distinct = tf.tensor_scatter_nd_update(nothing, numbers[:, tf.newaxis], values)
        is_row = distinct < num_rows
        return cls(tf.where(is_row, distinct, tf.constant(NOWHERE, ids.dtype)), is_row, places)

    def sums(self, rows: tf.Tensor) -> tf.Tensor:
        """The sums [n, ..] of the rows [n, ..] that share an id. They are added in their order."""
        return sums_at(rows, self.places, 0, rows.shape[0])


@dataclasses.dataclass(frozen=True, slots=True)
class Requests:
    """Distinct ids in blocks, one for each core that holds rows.

    Attributes:
      targets: int32 [n], the place of each distinct id in the concatenated blocks; NOWHERE if it has none.
      overflows: bool scalar, whether some block is too small.
    """

    targets: tf.Tensor
    overflows: tf.Tensor

    @classmethod
    def of(cls, distinct: DistinctIds, owners: int, rows_of_owner: int, capacity: int) -> Requests:
        """Requests to cores that hold `rows_of_owner` consecutive rows each, with `capacity` places in each block."""
        dtype = distinct.ids.dtype
        behind = tf.constant(owners * rows_of_owner, dtype)
        ids = tf.where(distinct.is_row, distinct.ids, behind)
        firsts = tf.range(owners, dtype=dtype) * rows_of_owner
        starts = tf.searchsorted(ids, firsts)
        owner = tf.minimum(tf.cast(ids // rows_of_owner, tf.int32), owners - 1)
        slots = tf.range(ids.shape[0]) - tf.gather(starts, owner)
        has_place = tf.logical_and(distinct.is_row, slots < capacity)
        overflows = tf.reduce_any(tf.logical_and(distinct.is_row, slots >= capacity))
        return cls(tf.where(has_place, owner * capacity + slots, NOWHERE), overflows)

    def placed(self, rows: tf.Tensor, nothing: int, size: Sequence[int]) -> tf.Tensor:
        """Rows [n, ..] of distinct ids, at their places in blocks of this size; `nothing` where there is none."""
        rest = rows.shape.as_list()[1:]
        blocks = tf.fill([math.prod(size), *rest], tf.constant(nothing, rows.dtype))
        return tf.reshape(rows_replaced(blocks, self.targets, rows), [*size, *rest])


def rows_replaced(x: tf.Tensor, places: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    """x [m, ..] with rows [n, ..] at places [n]. Equal places have equal rows. A place outside x is ignored."""
    where = places[:, tf.newaxis]
    # TensorFlow writes to the operand's own memory if nothing else holds it, and else to a copy.
    return tf.raw_ops.TensorScatterUpdate(tensor=x, indices=where, updates=rows, bad_indices_policy="IGNORE")
