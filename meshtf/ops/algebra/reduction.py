"""Reductions over named dimensions: sums, means, and whether any or all elements are true.

float16 and bfloat16 are added and multiplied in float32, and rounded once.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, ShapeLike
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.casting import converted
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation, ScalarKernel
from meshtf.ops.algebra.transpose_and_broadcast import broadcast, transpose
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work import reductions
from meshtf.planning.local_work.wide_terms import term_dtype
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner


@dataclasses.dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: the work on a slice, and the reduction between cores.

    of_some: the result's name in messages, if it needs at least one element, as a mean does; else empty.
    neutral: the number that changes no result. It fills the padding.
    """

    name: str
    local: Callable[..., tf.Tensor]
    across: reductions.Reduction
    neutral: float | bool | str
    gradient: Callable[[ReduceOperation, Tensor], Tensor] | None = None
    of_some: str = ""

    @property
    def adds_up(self) -> bool:
        """Whether each element adds a rounding error, unless a wider dtype is used."""
        return self.across in ("add", "multiply")


def _sum_gradient(op: ReduceOperation, dy: Tensor) -> Tensor:
    return broadcast(dy, op.inputs[0].shape)


def _wide_sum_gradient(op: ReduceOperation, dy: Tensor) -> Tensor:
    return broadcast(converted(dy, op.inputs[0].dtype), op.inputs[0].shape)


SUM = Reduction("reduce_sum", tf.reduce_sum, "add", 0, _sum_gradient)
WIDE_SUM = dataclasses.replace(SUM, gradient=_wide_sum_gradient)
"""A sum of a narrow dtype that stays in float32, for further work."""
ANY = Reduction("reduce_any", tf.reduce_any, "max", False)
ALL = Reduction("reduce_all", tf.reduce_all, "min", True)


class ReduceOperation(Operation):
    """Reduces the dimensions that the output lacks, and brings the rest into the output's order."""

    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, output_shape: Shape, reduction: Reduction, name: str | None = None) -> None:
        dtype = tf.float32 if reduction is WIDE_SUM else x.dtype
        super().__init__([x], [(output_shape, dtype)], name=name or reduction.name)
        self.reduction = reduction
        self.passes_pending_sums = self.is_sum

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        assert self.reduction.gradient is not None
        return [self.reduction.gradient(self, check_tensor(grad_ys[0]))]

    def pending_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        return self._reduced_axes(layouts) if self.is_sum else ()

    def lower(self, planner: Planner) -> None:
        (x,), (output,) = self.inputs, self.outputs
        layout = planner.layouts[x]
        reduced_dims = frozenset(d.name for d in x.shape if not output.shape.has(d.name))
        (value,) = planner.read_operands(self, [layout], Fill(self.reduction.neutral, reduced_dims))
        kept = Shape([d for d in x.shape if output.shape.has(d.name)])
        permutation = [kept.axis(d.name) for d in output.shape]
        axes = [i for i, d in enumerate(x.shape) if not output.shape.has(d.name)]
        is_ordered, is_sum, reduced = permutation == sorted(permutation), self.is_sum, self.local
        across, wide = self._reduced_axes(planner.layouts), sum_dtype(x.dtype) if self.reduction.adds_up else x.dtype
        # Terms of a float16 sum stay in float32 until the cores have added them.
        dtype = term_dtype(output.dtype) if self.reduction.adds_up and across else output.dtype

        def emit(core: Core, s: tf.Tensor) -> tf.Tensor:
            reduce = core.summed if is_sum else reduced
            y = tf.cast(reduce(tf.cast(s, wide), axes) if axes else s, dtype)
            return y if is_ordered else tf.transpose(y, np.array(permutation, np.int32))

        spec = (output.shape, dtype, restricted(layout, x.shape, output.shape))
        pending = tuple(dict.fromkeys((*value.pending, *(across if self.is_sum else ()))))
        flops = math.prod(value.slice_shape)
        (result,) = planner.compute(
            self.reduction.name, emit, [value], [spec], pending=pending, flops=flops, facts=WorkFacts(is_reduction=True)
        )
        if not self.is_sum:
            result = planner.all_reduce(result, across, self.reduction.across)
        planner.write(output, result)

    @property
    def is_sum(self) -> bool:
        """Whether the reduction is linear, so that cores may hold terms of its result."""
        return self.reduction.across == "add"

    @property
    def local(self) -> Callable[[tf.Tensor, Sequence[int]], tf.Tensor]:
        """The reduction of a core's slice along some dimensions: the same function for all operations of a kind."""
        return self.reduction.local

    def _reduced_axes(self, layouts: LayoutTable) -> tuple[str, ...]:
        (x,), (output,) = self.inputs, self.outputs
        return tuple(
            a for d, axes in zip(x.shape, layouts[x].axes, strict=True) if not output.shape.has(d.name) for a in axes
        )


def reduced_shape(x: Tensor, output_shape: ShapeLike | None, reduced_dim: ShapeLike | None) -> Shape:
    """The shape of a reduction's result: `output_shape`, `x` without `reduced_dim`, or by default no dimensions."""
    if output_shape is not None and reduced_dim is not None:
        raise ShapeError("give output_shape or reduced_dim, not both")
    if reduced_dim is not None:
        return x.shape - x.shape.only(reduced_dim)
    return x.shape.only([] if output_shape is None else output_shape)


def check_some_elements(x: Tensor, shape: Shape, what: str) -> None:
    """Checks that each element of `shape` results from at least one element of x, as a mean or a maximum must.

    Raises:
      ShapeError: x has no elements, but `shape` has.
    """
    if not x.size and shape.size:
        empty = ", ".join(f'"{d.name}"' for d in x.shape if not d.size)
        raise ShapeError(f"[{x.shape}] has no elements along {empty}, so there is no {what}")


def reduced_dimension(x: Tensor, reduced_dim: DimensionLike) -> Dimension:
    """The dimension of `x` that the argument names.

    Raises:
      ShapeError: x has no such dimension.
    """
    return x.shape[x.shape.axis(reduced_dim)]


def reduce(
    x: Tensor,
    reduction: Reduction,
    output_shape: ShapeLike | None,
    reduced_dim: ShapeLike | None,
    name: str | None,
) -> Tensor:
    """The result of a public reduction with these arguments; x itself if there is nothing to reduce."""
    x = check_tensor(x)
    shape = reduced_shape(x, output_shape, reduced_dim)
    if shape == x.shape:
        return x
    if reduction.of_some:
        check_some_elements(x, shape, reduction.of_some)
    if x.dtype == tf.bool and reduction.gradient is not None:
        raise DtypeError("a number is needed, not bool; convert with mtf.cast, or use mtf.reduce_any or reduce_all")
    return ReduceOperation(x, shape, reduction, name).outputs[0]


@language_function
def reduce_sum(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The sum over `reduced_dim`, or over the dimensions that `output_shape` lacks (by default all).

    A sum of integers keeps their dtype, and wraps around if it is too large: cast int8 to int32 first.

    Args:
      x: numbers.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or `output_shape` and `reduced_dim` are both given.
      DtypeError: x is bool.

    Examples:
      >>> mtf.reduce_sum(x, "hidden")
      reduce_sum [batch:4] float32
      >>> mtf.reduce_sum(x, output_shape="hidden")
      reduce_sum_1 [hidden:8] float32
      >>> mtf.reduce_sum(x)
      reduce_sum_2 [] float32
    """
    return reduce(x, SUM, output_shape, reduced_dim, name)


def sum_to(x: Tensor, shape: Shape) -> Tensor:
    """The gradient of a broadcast: `x` summed over the dimensions that `shape` lacks, in the order of `shape`."""
    if x.shape == shape:
        return x
    if x.shape.ndims == shape.ndims:
        return transpose(x, shape)
    return reduce_sum(x, output_shape=shape)


@language_function
def reduce_mean(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The mean over `reduced_dim`, or over the dimensions that `output_shape` lacks (by default all).

    Args:
      x: floating or complex.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or has no elements to take the mean of; or `output_shape` and `reduced_dim` are
        both given.
      DtypeError: x is of integers or bool.

    Examples:
      >>> mtf.reduce_mean(x, "batch")
      divide [hidden:8] float32
      >>> value(mtf.reduce_mean(mtf.constant(mesh, [1.0, 4.0], "n:2")))
      np.float32(2.5)
    """
    if not (check_tensor(x).dtype.is_floating or x.dtype.is_complex):
        raise DtypeError(f"the mean of {x.dtype.name} is not a {x.dtype.name}; use mtf.cast first")
    check_some_elements(x, reduced_shape(x, output_shape, reduced_dim), "mean")
    kind = SUM if sum_dtype(x.dtype) == x.dtype else WIDE_SUM
    total = reduce(x, kind, output_shape, reduced_dim, name or "reduce_mean")
    return converted(_divided(total, x.size // total.size), x.dtype) if x.size else total


def _divided(total: Tensor, count: int) -> Tensor:
    """The total divided by the count.

    Multiplying by 1 / count, or dividing term by term, would round means of equal numbers.
    """
    kernel = ScalarKernel(tf.divide, total.dtype.as_numpy_dtype(count).item(), total.dtype)
    operation = ElementwiseOperation(
        "divide", kernel, [total], gradient=lambda op, dy: (dy * (1 / count),), is_linear=True
    )
    operation.prefers_sums_done = True
    return operation.outputs[0]
