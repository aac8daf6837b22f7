"""Rows of a tensor replaced at distinct indices along a dimension."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes, restricted
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.indexing.local_gather import shifted
from meshtf.ops.indexing.replaced import ReplacedOperation
from meshtf.planning.local_work.rows_in_place import with_rows
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class ReplacedRowsOperation(ReplacedOperation):
    """x with rows replaced at indices along a dimension. Indices inside are distinct; one outside replaces nothing.

    x is [before, dim, rest], indices [batch, numbers] and updates [before, numbers, rest], where the batch is some of
    the dimensions before `dim`. Every core has the rows of all numbers. So replacing a few rows of a large tensor takes
    at most one copy of it, whatever its layout is.
    """

    @property
    def called(self) -> str:
        return "replaced_rows"

    def lower(self, planner: Planner) -> None:
        (x, indices, updates), (output,) = self.inputs, self.outputs
        layout, axis = planner.layouts[output], x.shape.axis(self._dim)
        values = planner.read_operands(self, [restricted(layout, x.shape, each.shape) for each in self.inputs])
        size, axes = layout.slice_shape(x.shape, planner.mesh_shape), layout.axes[axis]
        numbers = updates.shape.dims[axis]
        place = aligner(indices.shape, Shape([*x.shape.dims[:axis], numbers]))
        emit = ReplacedRows(size, axis, axes, numbers.size, place)
        (value,) = planner.compute(
            "replaced rows", emit, values, [(x.shape, x.dtype, layout)], flops=math.prod(values[2].slice_shape)
        )
        planner.write(output, value)


@dataclasses.dataclass(frozen=True, slots=True)
class ReplacedRows:
    """Local work: x [before, n, rest] with rows [before, numbers, rest] at indices of these numbers.

    size: the size of x. axis: the number of the dimension. axes: the mesh axes that split it. count: how many numbers
    there are. place: brings the indices into the order [before, numbers].
    """

    size: tuple[int, ...]
    axis: int
    axes: Axes
    count: int
    place: Callable[[tf.Tensor], tf.Tensor]

    def __call__(self, core: Core, x: tf.Tensor, index: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        if self._is_empty:
            return x
        where, rest = self._places(core, index), math.prod(self.size[self.axis + 1 :])
        first = tf.broadcast_to(tf.range(self._leading, dtype=where.dtype)[:, None], where.shape)
        written = tf.raw_ops.TensorScatterUpdate(
            tensor=tf.reshape(x, [self._leading, self.size[self.axis], rest]),
            indices=tf.stack([first, where], -1),
            updates=tf.reshape(rows, [self._leading, self.count, rest]),
            bad_indices_policy="IGNORE",
        )
        return tf.reshape(written, self.size)

    def in_place(self, core: Core, x: tf.Tensor, index: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
        """Writes over x, which nothing else may read. On processors, TensorFlow's other kernel would copy x."""
        if self._is_empty:
            return x
        n, rest = self.size[self.axis], self.size[self.axis + 1 :]
        where = self._places(core, index)
        is_inside = tf.reshape(tf.logical_and(where >= 0, where < n), [-1])
        where = tf.reshape(where + tf.range(self._leading, dtype=where.dtype)[:, None] * n, [-1])
        table, rows = tf.reshape(x, [-1, *rest]), tf.reshape(rows, [-1, *rest])
        # A row outside repeats the write of a row inside. If none is inside, all rows write row 0 back unchanged.
        other, has_any = tf.argmax(is_inside), tf.reduce_any(is_inside)
        where = tf.where(is_inside, where, tf.where(has_any, where[other], 0))
        same = tf.where(has_any, rows[other], table[0])
        rows = tf.where(tf.reshape(is_inside, [-1] + [1] * len(rest)), rows, same)
        return tf.reshape(with_rows(table, tf.cast(where, tf.int32), rows), self.size)

    @property
    def _leading(self) -> int:
        return math.prod(self.size[: self.axis])

    @property
    def _is_empty(self) -> bool:
        """Whether nothing is replaced. TensorFlow's kernels would then reject the indices instead of ignoring them."""
        return 0 in self.size or not self.count

    def _places(self, core: Core, index: tf.Tensor) -> tf.Tensor:
        """The indices in this core's part, [leading, numbers]."""
        own = self.place(shifted(core, index, self.axes, self.size[self.axis]))
        own = tf.broadcast_to(own, [*self.size[: self.axis], self.count])
        return tf.reshape(own, [self._leading, self.count])
