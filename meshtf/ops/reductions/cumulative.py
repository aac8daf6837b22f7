"""Running sums and maxima along a dimension. If it is split, each core sends only the total of its slice.

For x = 1 2 | 3 4 on two cores, the slices' own sums are 1 3 and 3 7. Each core sends its total, 3 and 7. Core 1 adds
the totals of the cores before it: 3 7 becomes 6 10. float16 and bfloat16 are summed in float32, and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike
from meshtf.errors import DtypeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import axes_size
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.reductions._cumulative_gradient import CumulativeMaxGradientOperation
from meshtf.planning.layouts.padding import LOWEST, Fill
from meshtf.planning.local_work import extrema
from meshtf.planning.plan import Core, Emit, Value
from meshtf.planning.planner import Planner


class CumulativeSumOperation(Operation):
    """The sum of the elements up to each one (without it if `exclusive`), or from each one to the end with
    `reverse`.
    """

    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, *, exclusive: bool, reverse: bool, name: str = "cumsum") -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.dim_name, self.exclusive, self.reverse = dim_name, exclusive, reverse

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        dy = check_tensor(grad_ys[0])
        return [cumsum(dy, self.dim_name, self.exclusive, not self.reverse)]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = planner.read(self.inputs[0], planner.layouts[output], Fill(0, frozenset([self.dim_name])))
        axis, exclusive, reverse = output.shape.axis(self.dim_name), self.exclusive, self.reverse
        axes, spec = value.layout.axes[axis], (value.shape, value.dtype, value.layout)
        flops, wide = math.prod(value.slice_shape), sum_dtype(value.dtype)

        def emit_total(core: Core, x: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.cast(x, wide), axis, keepdims=True)

        def emit(core: Core, x: tf.Tensor, *totals: tf.Tensor) -> tf.Tensor:
            y = _running_sum(tf.cast(x, wide), axis, exclusive=exclusive, reverse=reverse)
            if totals:
                earlier = _is_earlier(core, axes, axis, totals[0], reverse)
                y += tf.reduce_sum(tf.where(earlier, totals[0], tf.zeros([], wide)), axis, keepdims=True)
            return tf.cast(y, x.dtype)

        # A core needs only the totals of the cores before it, which are one number per row.
        totals = [_gathered(planner, value, axis, emit_total, wide)] if axes else []
        planner.write(output, planner.compute("cumsum", emit, [value, *totals], [spec], flops=flops)[0])


class CumulativeMaxOperation(Operation):
    """The largest element up to each one, from the end with `reverse`; or the int32 place of the first such element."""

    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, *, reverse: bool, is_index: bool, name: str = "cummax") -> None:
        super().__init__([x], [(x.shape, tf.int32 if is_index else x.dtype)], name=name)
        self.dim_name, self.reverse, self.is_index = dim_name, reverse, is_index

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,), dy = self.inputs, check_tensor(grad_ys[0])
        where = CumulativeMaxOperation(x, self.dim_name, reverse=self.reverse, is_index=True).outputs[0]
        return [CumulativeMaxGradientOperation(dy, where, self.dim_name, reverse=self.reverse).outputs[0]]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = planner.read(self.inputs[0], planner.layouts[output], Fill(LOWEST, frozenset([self.dim_name])))
        axis = output.shape.axis(self.dim_name)
        sizes = value.slice_shape[axis], output.shape[axis].size
        scan = _Maximum(axis, sizes, value.layout.axes[axis], reverse=self.reverse, with_index=self.is_index)
        totals = [_gathered(planner, value, axis, *total) for total in scan.totals(value.dtype)]
        flops = 2 * math.prod(value.slice_shape) * max(1, math.ceil(math.log2(max(2, scan.size))))
        spec = (output.shape, output.dtype, value.layout)
        planner.write(output, planner.compute("cummax", scan.emit, [value, *totals], [spec], flops=flops)[0])


class _Maximum:
    """The running maximum of a slice by doubling (Hillis and Steele 1986), and over the totals of other cores.

    In doubling, step k takes the larger of each element and the one 2^k before it. Three steps are enough for 8
    elements. If the dimension does not divide, padding beyond its end holds the lowest number, with the place of the
    last element. From the end, that element comes first if none is larger.
    """

    def __init__(
        self, axis: int, sizes: tuple[int, int], axes: tuple[str, ...], *, reverse: bool, with_index: bool
    ) -> None:
        """Keeps the geometry; `sizes` are those of the slice and of the whole."""
        (self.size, self._whole), self.axis = sizes, axis
        self._axes = axes if self.size else ()  # empty slices have no totals
        self._reverse, self._with_index = reverse, with_index

    def totals(self, dtype: tf.DType) -> list[tuple[Emit, tf.DType]]:
        """The totals that each core sends to the others, with dtypes: its maximum, and with an index its place."""
        if not self._axes:
            return []
        return [(self._maximum, dtype), *([(self._first_maximum, tf.int32)] if self._with_index else [])]

    def emit(self, core: Core, x: tf.Tensor, *totals: tf.Tensor) -> tf.Tensor:
        x = self._ranked(x)
        places = [self._places(core, x)] if self._with_index else []
        best = self._scanned([x, *places])
        if totals:
            earlier = _is_earlier(core, self._axes, self.axis, totals[0], self._reverse)
            lowest = tf.constant(_lowest(x.dtype), x.dtype)
            before = extrema.reduce_max(tf.where(earlier, totals[0], lowest), self.axis, keepdims=True)
            best = self._after(core, before, totals, best)
        return best[-1] if self._with_index else extrema.without_negative_zeros(best[-1])

    def _after(
        self, core: Core, before: tf.Tensor, totals: Sequence[tf.Tensor], best: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """The running maximum with what comes before the slice."""
        if not self._with_index:
            return [extrema.maximum(before, best[0])]
        count = totals[0].shape[self.axis]
        earlier = _is_earlier(core, self._axes, self.axis, totals[0], self._reverse)
        worst = tf.constant(tf.int32.min if self._reverse else tf.int32.max)
        first = tf.reduce_max if self._reverse else tf.reduce_min
        place = first(tf.where(earlier & (totals[0] == before), totals[1], worst), self.axis, keepdims=True)
        position = core.coordinate(self._axes)
        # The first core has nothing before it, and `before` is then the lowest number, which may equal its elements.
        has_earlier = position < count - 1 if self._reverse else position > 0
        return [tf.where(has_earlier & (before >= best[0]), place, best[1])]

    def _scanned(self, xs: list[tf.Tensor]) -> list[tf.Tensor]:
        """The running maximum of [x] or [x, place]; of equal elements, the first stays."""
        step = 1
        while step < self.size:
            ends, rest = self._cut(xs, step, self._reverse), self._cut(xs, self.size - step, not self._reverse)
            others = self._cut(xs, self.size - step, self._reverse)
            if self._with_index:
                keeps = others[0] >= rest[0]
                joined = [tf.where(keeps, other, own) for other, own in zip(others, rest, strict=True)]
            else:
                joined = [extrema.maximum(others[0], rest[0])]
            pairs = zip(ends, joined, strict=True)
            xs = [tf.concat([new, end] if self._reverse else [end, new], self.axis) for end, new in pairs]
            step *= 2
        return xs

    def _cut(self, xs: Sequence[tf.Tensor], count: int, from_end: bool) -> list[tf.Tensor]:
        """`count` elements from one end."""
        shape = xs[0].shape.as_list()
        begin = [self.size - count if from_end and i == self.axis else 0 for i in range(len(shape))]
        return [tf.slice(x, begin, [count if i == self.axis else n for i, n in enumerate(shape)]) for x in xs]

    def _places(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        own = tf.range(self.size)
        own = self._in_whole(core, own)
        shape = [self.size if i == self.axis else 1 for i in range(len(x.shape))]
        return tf.broadcast_to(tf.reshape(own, shape), x.shape)

    def _ranked(self, x: tf.Tensor) -> tf.Tensor:
        """x, with inf in place of NaN where places are wanted: NaN equals nothing, and so has no first place."""
        if not (self._with_index and x.dtype.is_floating):
            return x
        return tf.where(tf.math.is_nan(x), tf.constant(math.inf, x.dtype), x)

    def _maximum(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        """The maximum of a slice."""
        return extrema.reduce_max(self._ranked(x), self.axis, keepdims=True)

    def _first_maximum(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        """The place of a slice's first maximum, in the direction of the scan."""
        x = self._ranked(x)
        x = tf.reverse(x, [self.axis]) if self._reverse else x
        index = tf.argmax(x, self.axis, output_type=tf.int32)
        index = self.size - 1 - index if self._reverse else index
        return tf.expand_dims(self._in_whole(core, index), self.axis)

    def _in_whole(self, core: Core, places: tf.Tensor) -> tf.Tensor:
        """Places in a slice, as places in the whole."""
        if not self._axes:
            return places
        places += core.coordinate(self._axes) * self.size
        return places if self._whole % self.size == 0 else tf.minimum(places, self._whole - 1)


def _running_sum(x: tf.Tensor, axis: int, *, exclusive: bool, reverse: bool) -> tf.Tensor:
    """tf.cumsum, for which XLA has no kernel of complex numbers, nor of integers other than int32 and int64."""
    if x.dtype.is_complex:
        parts = [tf.cumsum(part, axis, exclusive, reverse) for part in (tf.math.real(x), tf.math.imag(x))]
        return tf.complex(*parts)
    if x.dtype.is_integer and x.dtype not in (tf.int32, tf.int64):
        wide = tf.int64 if x.dtype.size == tf.int64.size else tf.int32  # a cast back keeps the low bits: sums wrap
        return tf.cast(tf.cumsum(tf.cast(x, wide), axis, exclusive, reverse), x.dtype)
    return tf.cumsum(x, axis, exclusive, reverse)


def _gathered(planner: Planner, value: Value, axis: int, emit: Emit, dtype: tf.DType) -> Value:
    """The result of `emit` on each core's slice, of size 1 along a dimension, from all cores along it."""
    parts = axes_size(value.layout.axes[axis], planner.mesh_shape)
    shape = value.shape.resize_dimension(value.shape[axis].name, parts)
    flops = math.prod(value.slice_shape)
    (total,) = planner.compute("total", emit, [value], [(shape, dtype, value.layout)], flops=flops)
    return planner.all_gather(total, axis)


def _is_earlier(core: Core, axes: tuple[str, ...], axis: int, totals: tf.Tensor, reverse: bool) -> tf.Tensor:
    """Whether each total's slice is before the core's own, in the direction of the scan."""
    numbers = tf.range(totals.shape[axis])
    earlier = numbers > core.coordinate(axes) if reverse else numbers < core.coordinate(axes)
    return tf.reshape(earlier, [-1 if i == axis else 1 for i in range(len(totals.shape))])


def _lowest(dtype: tf.DType) -> Any:
    return -math.inf if dtype.is_floating else dtype.min


@language_function
def cumsum(
    x: Tensor, dim: DimensionLike, exclusive: bool = False, reverse: bool = False, name: str | None = None
) -> Tensor:
    """Running sums along a dimension, in the dtype of x.

    Args:
      x: a tensor of numbers.
      dim: a dimension of x.
      exclusive: whether each sum leaves out the element itself.
      reverse: whether to sum from the end.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x is bool.

    Examples:
      >>> numbers = mtf.constant(mesh, [1, 2, 3], "n:3", tf.int32)
      >>> value(mtf.cumsum(numbers, "n")), value(mtf.cumsum(numbers, "n", exclusive=True))
      (array([1, 3, 6], dtype=int32), array([0, 1, 3], dtype=int32))
    """
    own = _checked(x, dim)
    if x.dtype == tf.bool:
        raise DtypeError("bool has no sum; convert with mtf.cast")
    return CumulativeSumOperation(
        x, own.name, exclusive=bool(exclusive), reverse=bool(reverse), name=name or "cumsum"
    ).outputs[0]


@language_function
def cummax(x: Tensor, dim: DimensionLike, reverse: bool = False, name: str | None = None) -> Tensor:
    """Running maxima along a dimension. If elements are equal, the first in the scan's direction gets the gradient.

    Args:
      x: a tensor of an ordered dtype.
      dim: a dimension of x.
      reverse: whether to start from the end.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> value(mtf.cummax(mtf.constant(mesh, [1, 3, 2, 5], "n:4", tf.int32), "n"))
      array([1, 3, 3, 5], dtype=int32)
    """
    own = _checked(x, dim)
    if x.dtype == tf.bool or x.dtype.is_complex:
        raise DtypeError(f"{x.dtype.name} has no largest element; convert with mtf.cast")
    return CumulativeMaxOperation(x, own.name, reverse=bool(reverse), is_index=False, name=name or "cummax").outputs[0]


def _checked(x: Tensor, dim: DimensionLike) -> Dimension:
    return reduced_dimension(check_tensor(x), dim)
