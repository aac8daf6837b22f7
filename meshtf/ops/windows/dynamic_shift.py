"""Shifts along a dimension by an offset that the program computes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import axes_size, restricted
from meshtf.ops.algebra.arithmetic import negative
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.indexing.local_gather import rows_at
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class DynamicShiftOperation(Operation):
    """x moved along a dimension, by an offset for each index of some other dimensions.

    If the dimension is split, any core may need any slice, and the offset is known only when the program runs. On few
    cores, each core gets all slices. On more, slices rotate by 1, 2, 4, ... cores. A rotation takes effect if the
    offset has that binary digit: to move by 5 cores, slices are moved by 1 and by 4. A last rotation by 1 brings the
    elements that come from the slice before. Each core sends log2(cores) + 1 slices instead of cores - 1.
    """

    mapped = "all inputs"

    def __init__(self, x: Tensor, offset: Tensor, dim_name: str, *, wrap: bool) -> None:
        super().__init__([x, offset], [(x.shape, x.dtype)], name="dynamic_shift")
        self.dim_name, self.wrap = dim_name, wrap

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dy, back = check_tensor(grad_ys[0]), negative(self.inputs[1])
        return [DynamicShiftOperation(dy, back, self.dim_name, wrap=self.wrap).outputs[0], None]

    def lower(self, planner: Planner) -> None:
        (x, offset), (output,) = self.inputs, self.outputs
        layout = planner.layouts[output]
        value = planner.read(x, layout)
        moves = planner.read(offset, restricted(layout, output.shape, offset.shape))
        axis = output.shape.axis(self.dim_name)
        parts = axes_size(layout.axes[axis], planner.mesh_shape)
        if _turns(parts) + 1 < parts - 1:
            tables = self._brought_round(planner, value, moves, parts)
        else:
            tables = [planner.all_gather(value, axis)]
        emit = _Taking(self, layout.axes[axis], parts, value.slice_shape[axis]).emit
        spec, flops = (output.shape, output.dtype, layout), math.prod(value.slice_shape)
        planner.write(output, planner.compute("dynamic_shift", emit, [moves, *tables], [spec], flops=flops)[0])

    def _brought_round(self, planner: Planner, value: Value, moves: Value, parts: int) -> list[Value]:
        """Two slices: the slice from which a core's last elements come, preceded by the slice before it."""
        axis = value.shape.axis(self.dim_name)
        axes, n = value.layout.axes[axis], value.slice_shape[axis]
        align, spec = aligner(moves.shape, value.shape), (value.shape, value.dtype, value.layout)
        for turn in range(_turns(parts)):
            distance = 2**turn

            def emit(core: Core, own: tf.Tensor, moved: tf.Tensor, offset: tf.Tensor, at: int = distance) -> tf.Tensor:
                cores = tf.math.floordiv(tf.math.floormod(offset, n * parts), n)
                return tf.where(align(tf.math.floormod(tf.math.floordiv(cores, at), 2) == 1), moved, own)

            moved = planner.permute(value, axes, lambda j, by=distance: (j + by) % parts)
            (value,) = planner.compute("dynamic_shift", emit, [value, moved, moves], [spec])
        return [planner.permute(value, axes, lambda j: (j + 1) % parts), value]


class _Taking:
    """Takes a core's elements from a table: the whole dimension, or the two slices that contain the elements."""

    def __init__(self, operation: DynamicShiftOperation, axes: tuple[str, ...], parts: int, size: int) -> None:
        x, offset = (t.shape for t in operation.inputs)
        self._axis, self._wrap, self._axes, self._size = x.axis(operation.dim_name), operation.wrap, axes, size
        self._whole = parts * size
        batch = [x.axis(d) for d in offset]
        self._order = [*batch, self._axis, *(i for i in range(x.ndims) if i not in (*batch, self._axis))]
        self._batch_ndims = len(batch)

    def emit(self, core: Core, offset: tf.Tensor, *tables: tf.Tensor) -> tf.Tensor:
        own = tf.range(self._size, dtype=offset.dtype)
        begin = tf.cast(core.coordinate(self._axes) * self._size, offset.dtype) if self._axes else 0
        wanted = begin + own - offset[..., None]
        where = tf.math.floormod(wanted, self._whole)
        if len(tables) == 2:
            where = own - tf.math.floormod(offset, self._size)[..., None] + self._size
        if not self._wrap:
            where = tf.where((wanted >= 0) & (wanted < self._whole), where, -1)
        table = tf.concat(tables, self._axis) if len(tables) == 2 else tables[0]
        taken = rows_at(tf.transpose(table, self._order), where, self._batch_ndims)
        return tf.transpose(taken, np.argsort(self._order))


def _turns(parts: int) -> int:
    """The number of binary digits of the numbers below `parts`."""
    return (parts - 1).bit_length()


@language_function
def dynamic_shift(x: Tensor, offset: Tensor, dim: DimensionLike, wrap: bool) -> Tensor:
    """x moved along a dimension by an offset that the program computes: y[.., i] = x[.., i - offset[..]].

    Args:
      x: a tensor of any dtype.
      offset: int32 or int64, over some of the dimensions of x, without `dim`.
      dim: a dimension of x.
      wrap: whether elements that leave at one end enter at the other. Otherwise zeros (False) enter.

    Raises:
      ShapeError: x lacks the dimension, or the offset has this dimension or one that x lacks.
      DtypeError: the offset is not int32 or int64.

    Examples:
      >>> numbers, offset = mtf.range(mesh, ("n", 4)), mtf.constant(mesh, 2, dtype=tf.int32)
      >>> value(mtf.dynamic_shift(numbers, offset, "n", wrap=False))
      array([0, 0, 0, 1], dtype=int32)
    """
    own = reduced_dimension(check_tensor(x), dim)
    _check_offset(x, check_tensor(offset, "offset"), own)
    return DynamicShiftOperation(x, offset, own.name, wrap=bool(wrap)).outputs[0] if x.size else x


def _check_offset(x: Tensor, offset: Tensor, dim: Dimension) -> None:
    if offset.dtype not in (tf.int32, tf.int64):
        raise DtypeError(f"the offset must be int32 or int64, not {offset.dtype.name}; convert with mtf.cast")
    if offset.shape.has(dim):
        raise ShapeError(f'the offset [{offset.shape}] has dimension "{dim.name}", along which it moves')
    for own in offset.shape:
        x.shape.axis(own)
