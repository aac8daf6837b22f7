"""The k largest or smallest elements along a dimension, and their indices.

If the dimension is split, each core finds the best of its part, and sends only these. Take the two largest of eight, on
two cores:

    core 0    3 9 1 4    ->    9 at 1, 4 at 3
    core 1    7 2 8 5    ->    8 at 6, 7 at 4
    of both              ->    9 at 1, 8 at 6
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_dimension, unused_name
from meshtf.errors import DtypeError, ShapeError, counted
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import TensorLayout, restricted, without_split
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.indexing.gather import gather, scatter_add
from meshtf.ops.inputs.scalars import whole_number
from meshtf.ops.rearranging.reshape import rename_dimension
from meshtf.planning.local_work import extrema
from meshtf.planning.moves.reshard import cheapest_route
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over
from meshtf.planning.whole_dimensions import bytes_sent, whole_splits


class TopKOperation(Operation):
    """The k largest (or smallest) elements along a dimension in order, and their int32 indices. NaN counts as -inf.

    If the dimension is split, each core finds the best of its own part, and then all cores find the best of those. If
    it sends fewer bytes, another dimension is split instead.
    """

    mapped = "by name"

    def __init__(self, x: Tensor, dim: Dimension, k_dim: Dimension, *, is_largest: bool, name: str) -> None:
        shape = Shape([*(d for d in x.shape if d.name != dim.name), k_dim])
        super().__init__([x], [(shape, x.dtype), (shape, tf.int32)], name=name)
        self.dim, self.k_dim, self.is_largest = dim, k_dim, is_largest

    def needs_whole(self, name: str) -> bool:
        return name in (self.dim.name, self.k_dim.name)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,), dy = self.inputs, grad_ys[0]
        return [None if dy is None else scatter_add(dy, self.outputs[1], self.dim, x.shape)]

    def lower(self, planner: Planner) -> None:
        (x,) = self.inputs
        axis, own = x.shape.axis(self.dim), planner.layouts[x]
        if not own.axes[axis]:
            values = self._local(planner, planner.read(x), self.dim.size)
        else:
            # Either whole rows are sent or candidates are. With a small k there are fewer candidates.
            splits = whole_splits(planner, self.inputs, [self.dim.name], self.outputs)
            if bytes_sent(planner, self.inputs, self.outputs, splits) < self._bytes_of_candidates(planner):
                values = self._local(planner, planner.read(x, layout_over(x.shape, splits)), self.dim.size)
            else:
                values = self._best(planner, self._local(planner, planner.read(x), self._part(planner)))
        for output, value in zip(self.outputs, values, strict=True):
            planner.write(output, value)

    def _part(self, planner: Planner) -> int:
        (x,) = self.inputs
        return planner.layouts[x].slice_shape(x.shape, planner.mesh_shape)[x.shape.axis(self.dim)]

    def _candidates(self, planner: Planner) -> Shape:
        """The result's shape, with the number of candidates of all cores together in place of k."""
        part = self._part(planner)
        count = min(self.k_dim.size, part) * (self.dim.size // part if part else 0)
        return self.outputs[0].shape.resize_dimension(self.k_dim.name, count)

    def _bytes_of_candidates(self, planner: Planner) -> int:
        """The bytes sent to give every core the best of all, and to move these to the outputs' own layouts."""
        (x,) = self.inputs
        shape, own = self._candidates(planner), planner.layouts[x]
        whole = restricted(own, x.shape, self.outputs[0].shape)
        source = TensorLayout((*whole.axes[:-1], own.axes[x.shape.axis(self.dim)]))
        sent = planner.tensors.bytes_to_read(x, own)
        for y in self.outputs:
            to_whole = cheapest_route(source, (), whole, shape, y.dtype.size, planner.mesh_shape)
            back = cheapest_route(whole, (), planner.layouts[y], y.shape, y.dtype.size, planner.mesh_shape)
            sent += to_whole.bytes_sent + back.bytes_sent
        return sent

    def _local(self, planner: Planner, value: Value, part: int) -> Sequence[Value]:
        """The best of each core's own part, with their indices in the whole dimension."""
        axis = value.shape.axis(self.dim)
        axes, k = value.layout.axes[axis], min(self.k_dim.size, part)
        # TensorFlow's kernel looks along the last dimension only.
        order = [*(i for i in range(value.shape.ndims) if i != axis), axis]
        find = best_of(self.is_largest)

        def emit(core: Core, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            values, indices = find(x if order == sorted(order) else tf.transpose(x, order), k)
            return values, indices + core.coordinate(axes) * part if axes else indices

        shape = self._candidates(planner) if axes else self.outputs[0].shape
        layout = TensorLayout(tuple(value.layout.axes[i] for i in order))
        specs = [(shape, value.dtype, layout), (shape, tf.int32, layout)]
        return planner.compute("top_k", emit, [value], specs, flops=math.prod(value.slice_shape))

    def _best(self, planner: Planner, found: Sequence[Value]) -> Sequence[Value]:
        """The best of all cores' best. Lower parts come first, so that equal elements stay in order of their index."""
        whole = [planner.reshard(v, without_split(v.layout, v.shape, self.k_dim.name)) for v in found]
        k, ndims, find = self.k_dim.size, self.outputs[0].shape.ndims, best_of(self.is_largest)

        def emit(core: Core, values: tf.Tensor, indices: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            best, where = find(values, k)
            return best, tf.gather(indices, where, axis=ndims - 1, batch_dims=ndims - 1)

        specs = [(y.shape, y.dtype, whole[0].layout) for y in self.outputs]
        return planner.compute("top_k", emit, whole, specs, flops=math.prod(whole[0].slice_shape))


def best_of(is_largest: bool) -> Callable[[tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]]:
    """A function that finds the k largest or smallest elements along the last dimension, and their indices.

    Equal elements are in order of their index. XLA puts -0 before 0, and TensorFlow returns the sign of either if k is
    1. Here every zero becomes 0.
    """

    def find(x: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
        if x.dtype.is_floating:
            x = tf.where(tf.math.is_nan(x), tf.constant(-math.inf, x.dtype), extrema.without_negative_zeros(x))
        # XLA has no kernel for uint16.
        ordered = tf.cast(x, tf.int32) if x.dtype == tf.uint16 else x
        values, indices = tf.math.top_k(ordered if is_largest else _reversed(ordered), k)
        return tf.cast(values if is_largest else _reversed(values), x.dtype), indices

    return find


def _reversed(x: tf.Tensor) -> tf.Tensor:
    """Numbers in the opposite order, without overflow. The function is its own inverse."""
    return tf.negative(x) if x.dtype.is_floating else tf.bitwise.invert(x)


@language_function
def top_k(
    x: Tensor, reduced_dim: DimensionLike, k_dim: DimensionLike, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """The largest elements along a dimension, in order, and their int32 indices. `k_dim` is the last dimension of both.

    Equal elements are in order of their index. NaN counts as -inf, and becomes -inf. Gradients flow to the chosen
    elements.

    Args:
      x: numbers.
      reduced_dim: a dimension of x.
      k_dim: the new dimension. Its size is the number of elements to find.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension or has `k_dim` already, or there are fewer elements than `k_dim.size`.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> mtf.top_k(x, "hidden", k_dim=("best", 2))
      (top_k [batch:4 best:2] float32, top_k:1 [batch:4 best:2] int32)
      >>> values, indices = mtf.top_k(mtf.constant(mesh, [1.0, 3.0, 2.0], "vocab:3"), "vocab", ("best", 2))
      >>> value(values), value(indices)
      (array([3., 2.], dtype=float32), array([1, 2], dtype=int32))
    """
    values, indices = _top_k(x, reduced_dim, k_dim, True, name or "top_k")
    return values, indices


@language_function
def nth_largest_element(x: Tensor, n: int, reduced_dim: DimensionLike, name: str | None = None) -> Tensor:
    """The n-th largest element along a dimension, which the result lacks.

    Args:
      x: numbers. NaN counts as, and becomes, -inf.
      n: counts from 0.
      reduced_dim: a dimension of x.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or it has no n-th element.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> value(mtf.nth_largest_element(mtf.constant(mesh, [1.0, 3.0, 2.0], "n:3"), 1, "n"))
      np.float32(2.0)
    """
    return _nth(x, n, reduced_dim, True, name or "nth_largest_element")


@language_function
def nth_smallest_element(x: Tensor, n: int, reduced_dim: DimensionLike, name: str | None = None) -> Tensor:
    """The n-th smallest element along a dimension, which the result lacks.

    Args:
      x: numbers. NaN counts as, and becomes, -inf.
      n: counts from 0.
      reduced_dim: a dimension of x.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or it has no n-th element.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> value(mtf.nth_smallest_element(mtf.constant(mesh, [1.0, 3.0, 2.0], "n:3"), 0, "n"))
      np.float32(1.0)
    """
    return _nth(x, n, reduced_dim, False, name or "nth_smallest_element")


def ordered_dimension(x: Tensor, dim: DimensionLike) -> Dimension:
    """The dimension of `x` that the argument names.

    Raises:
      ShapeError: x has no such dimension.
      DtypeError: its elements have no order.
    """
    own = reduced_dimension(check_tensor(x), dim)
    if x.dtype == tf.bool or x.dtype.is_complex:
        raise DtypeError(f"{x.dtype.name} has no order; convert with mtf.cast")
    return own


def _top_k(
    x: Tensor, reduced_dim: DimensionLike, k_dim: DimensionLike, is_largest: bool, name: str
) -> tuple[Tensor, ...]:
    dim, wanted = ordered_dimension(x, reduced_dim), convert_to_dimension(k_dim)
    if wanted is None:
        raise ShapeError("top_k needs a k_dim; write mtf.Dimension(name, k)")
    if wanted.size > dim.size:
        raise ShapeError(
            f'k_dim "{wanted.name}" has size {wanted.size}, but "{dim.name}" has only {counted(dim.size, "element")}'
        )
    if wanted.name != dim.name and x.shape.has(wanted.name):
        raise ShapeError(f'[{x.shape}] has a dimension "{wanted.name}" already; choose another name for k_dim')
    if wanted.name != dim.name:
        return TopKOperation(x, dim, wanted, is_largest=is_largest, name=name).outputs
    other = Dimension(unused_name(f"{dim.name}_best", x.shape), wanted.size)
    found = TopKOperation(x, dim, other, is_largest=is_largest, name=name).outputs
    return tuple(rename_dimension(y, other.name, wanted.name) for y in found)


def _nth(x: Tensor, n: int, reduced_dim: DimensionLike, is_largest: bool, name: str) -> Tensor:
    dim = ordered_dimension(x, reduced_dim)
    number = whole_number(n, "n")
    if not 0 <= number < dim.size:
        raise ShapeError(f'dimension "{dim.name}" of size {dim.size} has no element number {number}')
    k_dim = Dimension(unused_name(f"{dim.name}_best", x.shape), number + 1)
    values, _ = _top_k(x, dim, k_dim, is_largest, name)
    return gather(values, number, k_dim)
