"""Slices of a named dimension that begin at a position that the program computes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import DtypeError, ShapeError, counted
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.comparisons import greater_equal, less, logical_and
from meshtf.ops.elementwise.remainders_powers_extrema import maximum, minimum
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import constant
from meshtf.ops.inputs.constants import range as positions
from meshtf.ops.inputs.scalars import whole_number
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.moves.reshard import cheapest_route
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner

_Layouts = tuple[TensorLayout, TensorLayout]


class WindowOperation(Operation):
    """y[i] = x[i + begin] along a dimension, which has another size in y; zeros (False) where x has no such element.

    With `is_placed` it is the transpose, y[i] = x[i - begin]. If the dimension is split in x, each core computes the
    part of y that its slice holds, and a sum stays pending. If it sends fewer bytes, x is gathered instead.
    """

    mapped = "first input"

    def __init__(
        self, x: Tensor, begin: Tensor, dim_name: str, size: int, *, is_placed: bool = False, name: str
    ) -> None:
        shape = x.shape.resize_dimension(dim_name, size)
        super().__init__([x, begin], [(shape, x.dtype)], name=name)
        self.dim_name, self.is_placed = dim_name, is_placed

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x, begin), (dy,), name = self.inputs, grad_ys, self.dim_name
        assert dy is not None
        size = x.shape.get_dim_by_name(name).size
        return [WindowOperation(dy, begin, name, size, is_placed=not self.is_placed, name="window").outputs[0], None]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        source, _ = self._cheapest(layouts)
        return source.axes[self._axis]

    @property
    def _axis(self) -> int:
        return self.outputs[0].shape.axis(self.dim_name)

    def lower(self, planner: Planner) -> None:
        (x, begin), (output,), axis = self.inputs, self.outputs, self._axis
        source, target = self._cheapest(planner.layouts)
        values = [planner.read(x, source), planner.read(begin, TensorLayout(()))]
        own, size = values[0].slice_shape, target.slice_shape(output.shape, planner.mesh_shape)
        from_axes, to_axes, sign = source.axes[axis], target.axes[axis], -1 if self.is_placed else 1
        margin = [[size[i], size[i]] if i == axis else [0, 0] for i in range(len(size))]

        def emit(core: Core, s: tf.Tensor, begin: tf.Tensor) -> tf.Tensor:
            first = sign * tf.cast(begin, tf.int32)
            first += core.coordinate(to_axes) * size[axis] if to_axes else 0
            first -= core.coordinate(from_axes) * own[axis] if from_axes else 0
            # Zeros of a slice's length on both sides: a window that only partly meets this core's part can then be cut
            # from it.
            first = tf.clip_by_value(first + size[axis], 0, own[axis] + size[axis])
            starts = [first if i == axis else 0 for i in range(len(size))]
            return tf.slice(tf.pad(s, margin), starts, size)

        spec, pending = (output.shape, output.dtype, target), from_axes
        (piece,) = planner.compute("window", emit, values, [spec], pending=pending, flops=math.prod(size))
        planner.write(output, piece)

    def _cheapest(self, layouts: LayoutTable) -> _Layouts:
        """The layouts of x and of the result that send the fewest bytes, and then do the least work."""
        x, output, mesh_shape = self.inputs[0], self.outputs[0], layouts.mesh_shape

        def cost(pair: _Layouts) -> tuple[int, int]:
            source, target = pair
            read = cheapest_route(layouts[x], (), source, x.shape, x.dtype.size, mesh_shape)
            pending = source.axes[self._axis]
            own = layouts[output]
            written = cheapest_route(target, pending, own, output.shape, x.dtype.size, mesh_shape)
            # Among layouts that send equally many bytes, the one with more splits does less work on each core.
            return read.bytes_sent + written.bytes_sent, -axes_size(source.used | target.used, mesh_shape)

        return min(self._choices(layouts), key=cost)

    def _choices(self, layouts: LayoutTable) -> Iterator[_Layouts]:
        """Pairs of layouts like either tensor's.

        The dimension is split in x, in the result, in both over different axes, or not.
        """
        x, output, axis = self.inputs[0], self.outputs[0], self._axis
        for tensor in (x, output):
            axes = layouts[tensor].axes
            others = {a for i, own in enumerate(axes) if i != axis for a in own}
            for source in ((), layouts[x].axes[axis]):
                for target in ((), layouts[output].axes[axis]):
                    if not (others & {*source, *target} or set(source) & set(target)):
                        yield _replaced(axes, axis, source), _replaced(axes, axis, target)


def _replaced(axes: tuple[Axes, ...], axis: int, new: Axes) -> TensorLayout:
    return TensorLayout((*axes[:axis], new, *axes[axis + 1 :]))


@language_function
def dynamic_slice(
    x: Tensor, begin: Tensor, size: int, slice_dim_name: DimensionLike, name: str | None = None
) -> Tensor:
    """`size` elements of a dimension, from an index that the program computes.

    If too few elements follow the index, the last index with enough of them is taken, as in XLA.

    Args:
      x: a tensor of any dtype.
      begin: int32 or int64, a scalar.
      size: a number that is known while the graph is built.
      slice_dim_name: a dimension of x.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension or has fewer elements than `size`, or `begin` is no scalar.
      DtypeError: `begin` is not int32 or int64.

    Examples:
      >>> begin = mtf.constant(mesh, 2, dtype=tf.int32)
      >>> value(mtf.dynamic_slice(mtf.range(mesh, ("n", 6)), begin, 3, "n"))
      array([2, 3, 4], dtype=int32)
    """
    dim = reduced_dimension(check_tensor(x), slice_dim_name)
    size = whole_number(size, "size")
    if not 0 <= size <= dim.size:
        raise ShapeError(f'dimension "{dim.name}" has {counted(dim.size, "element")}, but a slice of {size} is wanted')
    first = _clamped(begin, dim.size - size)
    if size == dim.size:
        return x
    return WindowOperation(x, first, dim.name, size, name=name or "dynamic_slice").outputs[0]


@language_function
def dynamic_update_slice(
    x: Tensor, update: Tensor, begin: Tensor, dim: DimensionLike, name: str | None = None
) -> Tensor:
    """x with some elements of a dimension replaced by `update`, from an index that the program computes.

    If too few elements follow the index, the last index with enough of them is taken, as in XLA.

    Args:
      x: a tensor of any dtype.
      update: a tensor with x's dtype and dimensions, in any order. Its size of `dim` may be smaller.
      begin: int32 or int64, a scalar.
      dim: a dimension of x.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, `update` has more elements of it or other dimensions, or `begin` is no scalar.
      DtypeError: `begin` is not int32 or int64, or the dtypes of x and `update` differ.

    Examples:
      >>> numbers, begin = mtf.range(mesh, ("n", 5)), mtf.constant(mesh, 1, dtype=tf.int32)
      >>> value(mtf.dynamic_update_slice(numbers, mtf.zeros(mesh, "n:2", tf.int32), begin, "n"))
      array([0, 0, 0, 3, 4], dtype=int32)
    """
    own = reduced_dimension(check_tensor(x), dim)
    same_dtype([x, check_tensor(update, "update")])
    size = update.shape.get_dim_by_name(own.name).size
    wanted = x.shape.resize_dimension(own.name, size)
    if set(wanted.dims) != set(update.shape.dims) or size > own.size:
        raise ShapeError(
            f'update [{update.shape}] must have the dimensions of [{x.shape}], with "{own.name}" at most {own.size}'
        )
    first = _clamped(begin, own.size - size)
    piece = transpose(update, wanted)
    placed = WindowOperation(piece, first, own.name, own.size, is_placed=True, name=name or "dynamic_update_slice")
    place = positions(x.mesh, own, first.dtype)
    is_inside = logical_and(greater_equal(place, first), less(place, first + size))
    return where(is_inside, placed.outputs[0], x, output_shape=x.shape)


def _clamped(begin: Tensor, last: int) -> Tensor:
    if check_tensor(begin, "beginning").dtype not in (tf.int32, tf.int64):
        raise DtypeError(f"the beginning must be int32 or int64, not {begin.dtype.name}; convert with mtf.cast")
    if begin.shape.ndims:
        raise ShapeError(f"the beginning [{begin.shape}] must be a scalar; for one per row use mtf.gather")
    limits = [constant(begin.mesh, limit, dtype=begin.dtype) for limit in (0, last)]
    return minimum(maximum(begin, limits[0]), limits[1])
