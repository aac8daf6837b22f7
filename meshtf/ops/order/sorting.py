"""Sorting along a dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import UsageError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.ops.order.top_k import best_of, ordered_dimension
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.local_work.work_facts import Kernel
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over
from meshtf.planning.whole_dimensions import whole_because, whole_splits

_DIRECTIONS = ("ASCENDING", "DESCENDING")


class ArgsortOperation(Operation):
    """The int32 indices that sort a dimension. Equal elements keep their order."""

    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, *, is_ascending: bool, name: str) -> None:
        super().__init__([x], [(x.shape, tf.int32)], name=name)
        self.dim_name, self.is_ascending = dim_name, is_ascending

    def gathers_because(self, layouts: LayoutTable) -> str:
        return whole_because(layouts, self.inputs, [self.dim_name], "sorting needs all elements of a dimension")

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def lower(self, planner: Planner) -> None:
        (x,), (output,) = self.inputs, self.outputs
        layout = layout_over(x.shape, whole_splits(planner, self.inputs, [self.dim_name], self.outputs))
        exchanged = _exchange_with_last(x.shape.ndims, x.shape.axis(self.dim_name))
        value, find = planner.read(x, layout), best_of(not self.is_ascending)

        def emit(core: Core, s: tf.Tensor) -> tf.Tensor:
            s = exchanged(s)
            return exchanged(find(s, s.shape[-1])[1])

        spec, flops = (x.shape, tf.int32, layout), math.prod(value.slice_shape)
        planner.write(output, planner.compute("argsort", emit, [value], [spec], flops=flops)[0])


class ReorderOperation(Operation):
    """x with a dimension reordered by a permutation of its indices. The inverse operation restores the order."""

    mapped = "all inputs"

    def __init__(
        self, x: Tensor, order: Tensor, dim_name: str, *, is_inverse: bool = False, name: str = "sort"
    ) -> None:
        super().__init__([x, order], [(x.shape, x.dtype)], name=name)
        self.dim_name, self.is_inverse = dim_name, is_inverse

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (_, order), (dy,) = self.inputs, grad_ys
        assert dy is not None
        return [ReorderOperation(dy, order, self.dim_name, is_inverse=not self.is_inverse).outputs[0], None]

    def gathers_because(self, layouts: LayoutTable) -> str:
        return whole_because(layouts, self.inputs, [self.dim_name], "sorting needs all elements of a dimension")

    def lower(self, planner: Planner) -> None:
        (x, _), (output,) = self.inputs, self.outputs
        layout = layout_over(x.shape, whole_splits(planner, self.inputs, [self.dim_name], self.outputs))
        exchanged = _exchange_with_last(x.shape.ndims, x.shape.axis(self.dim_name))
        values, ndims, is_inverse = [planner.read(t, layout) for t in self.inputs], x.shape.ndims, self.is_inverse

        def emit(core: Core, s: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
            s, order = exchanged(s), exchanged(order)
            # Sorting a permutation gives its inverse: the place to which each element was moved.
            if is_inverse:
                order = tf.argsort(order)
            return exchanged(tf.gather(s, order, axis=ndims - 1, batch_dims=ndims - 1))

        spec, flops = (output.shape, output.dtype, layout), math.prod(values[0].slice_shape)
        planner.write(output, planner.compute("sort", emit, values, [spec], flops=flops)[0])


@language_function
def sort(x: Tensor, dim: DimensionLike, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """x with the elements along a dimension sorted. Gradients flow back to each element. NaN counts as -inf.

    Args:
      x: a tensor of an ordered dtype.
      dim: a dimension of x.
      direction: "ASCENDING" or "DESCENDING".
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x has no order (bool, complex).
      UsageError: the direction is neither "ASCENDING" nor "DESCENDING".

    Examples:
      >>> numbers = mtf.constant(mesh, [2.0, 3.0, 1.0], "n:3")
      >>> value(mtf.sort(numbers, "n", direction="DESCENDING"))
      array([3., 2., 1.], dtype=float32)
    """
    own = ordered_dimension(x, dim)
    return ReorderOperation(x, argsort(x, own, direction), own.name, name=name or "sort").outputs[0]


@language_function
def argsort(x: Tensor, dim: DimensionLike, direction: str = "ASCENDING", name: str | None = None) -> Tensor:
    """The int32 indices along a dimension that sort x. Equal elements keep their order, in both directions.

    Args:
      x: numbers. NaN counts as -inf.
      dim: a dimension of x.
      direction: "ASCENDING" or "DESCENDING".
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x has no order (bool, complex).
      UsageError: the direction is neither "ASCENDING" nor "DESCENDING".

    Examples:
      >>> value(mtf.argsort(mtf.constant(mesh, [2.0, 3.0, 1.0], "n:3"), "n"))
      array([2, 0, 1], dtype=int32)
    """
    own = ordered_dimension(x, dim)
    if direction not in _DIRECTIONS:
        raise UsageError(f"the direction must be {_DIRECTIONS[0]!r} or {_DIRECTIONS[1]!r}, not {direction!r}")
    is_ascending = direction == _DIRECTIONS[0]
    return ArgsortOperation(x, own.name, is_ascending=is_ascending, name=name or "argsort").outputs[0]


def _exchange_with_last(ndims: int, axis: int) -> Kernel:
    """A function that exchanges a dimension with the last one. It is its own inverse."""
    order = list(range(ndims))
    order[axis], order[-1] = order[-1], order[axis]

    def exchanged(x: tf.Tensor) -> tf.Tensor:
        return x if axis == ndims - 1 else tf.transpose(x, order)

    return exchanged
