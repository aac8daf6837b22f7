"""Rows of a tensor replaced at distinct indices along a dimension."""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import restricted
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.indexing.local_gather import shifted
from meshtf.ops.indexing.replaced import ReplacedOperation
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


class ReplacedRowsOperation(ReplacedOperation):
    """x with rows replaced at indices along a dimension. No index inside comes twice; one outside replaces nothing.

    x is [before, dim, rest], indices [batch, numbers] and updates [before, numbers, rest], where the batch is some of
    the dimensions before `dim`. Every core has the rows of all numbers. So a few rows change a large tensor by one copy
    of it, whatever its layout is.
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

        def emit(core: Core, s: tf.Tensor, index: tf.Tensor, new: tf.Tensor) -> tf.Tensor:
            if 0 in size or not numbers.size:  # where TensorFlow's kernels refuse whatever would be ignored
                return s
            where = tf.broadcast_to(place(shifted(core, index, axes, size[axis])), [*size[:axis], numbers.size])
            return _with_rows(s, where, new, axis)

        (value,) = planner.compute(
            "replaced rows", emit, values, [(x.shape, x.dtype, layout)], flops=math.prod(values[2].slice_shape)
        )
        planner.write(output, value)


def _with_rows(x: tf.Tensor, where: tf.Tensor, rows: tf.Tensor, axis: int) -> tf.Tensor:
    """x [before, n, rest] with rows [before, numbers, rest] in the places [before, numbers]."""
    size, count = x.shape.as_list(), where.shape[-1]
    leading, rest = math.prod(size[:axis]), math.prod(size[axis + 1 :])
    where = tf.reshape(where, [leading, count])
    first = tf.broadcast_to(tf.range(leading, dtype=where.dtype)[:, None], [leading, count])
    written = tf.raw_ops.TensorScatterUpdate(
        tensor=tf.reshape(x, [leading, size[axis], rest]),
        indices=tf.stack([first, where], -1),
        updates=tf.reshape(rows, [leading, count, rest]),
        bad_indices_policy="IGNORE",
    )
    return tf.reshape(written, size)
