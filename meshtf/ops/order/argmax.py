"""The largest element along a dimension with its index, and the index of the smallest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike, Shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.arithmetic import negative, sub
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.indexing.gather import scatter_add
from meshtf.planning.local_work import extrema
from meshtf.planning.plan import Core, OutputSpec, Value
from meshtf.planning.planner import Planner


class TopOneOperation(Operation):
    """The first maximum along a dimension: its value (if requested) and its int32 index. NaN counts as -inf.

    If the dimension is split, each core finds its own best. One allreduce finds the best value of all, and another
    finds the lowest index that has this value:

        core 0    3 1    best 3 at 0       allreduce max: 3       index 0 (has 3)      allreduce min: 0
        core 1    2 3    best 3 at 3                              index 3 (has 3)
    """

    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, *, with_value: bool, name: str) -> None:
        shape = Shape([d for d in x.shape if d.name != dim_name])
        values = [(shape, x.dtype)] if with_value else []
        super().__init__([x], [*values, (shape, tf.int32)], name=name)
        self.dim_name = dim_name

    def needs_whole(self, name: str) -> bool:
        return name == self.dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,), dy = self.inputs, grad_ys[0]
        assert dy is not None
        return [scatter_add(dy, self.outputs[-1], x.shape.get_dim_by_name(self.dim_name), output_shape=x.shape)]

    def lower(self, planner: Planner) -> None:
        (x,) = self.inputs
        value = planner.read(x)
        if value.layout.axes[x.shape.axis(self.dim_name)]:
            found = self._over_cores(planner, value)
        else:
            found = self._on_each_core(planner, value, with_value=len(self.outputs) == 2)
        for output, result in zip(reversed(self.outputs), reversed(found), strict=False):
            planner.write(output, result)

    def _over_cores(self, planner: Planner, value: Value) -> list[Value]:
        axes = value.layout.axes[value.shape.axis(self.dim_name)]
        own, index = self._on_each_core(planner, value, with_value=True)
        best = planner.all_reduce(own, axes, "max")

        def emit(core: Core, own: tf.Tensor, best: tf.Tensor, index: tf.Tensor) -> tf.Tensor:
            return tf.where(tf.equal(own, best), index, tf.constant(tf.int32.max))

        spec = (index.shape, tf.int32, index.layout)
        (candidate,) = planner.compute("argmax", emit, [own, best, index], [spec], flops=math.prod(own.slice_shape))
        return [best, planner.all_reduce(candidate, axes, "min")]

    def _on_each_core(self, planner: Planner, value: Value, *, with_value: bool) -> list[Value]:
        """The best element of the core's own part, with its index in the whole dimension."""
        shape, axis = self.outputs[-1].shape, value.shape.axis(self.dim_name)
        axes, n = value.layout.axes[axis], value.slice_shape[axis]

        def emit(core: Core, s: tf.Tensor) -> list[tf.Tensor]:
            if s.dtype.is_floating:
                s = tf.where(tf.math.is_nan(s), tf.constant(-math.inf, s.dtype), s)
            index = tf.argmax(s, axis, output_type=tf.int32)
            index = index + core.coordinate(axes) * n if axes else index
            return [extrema.without_negative_zeros(tf.reduce_max(s, axis)), index] if with_value else [index]

        layout, flops = restricted(value.layout, value.shape, shape), math.prod(value.slice_shape)
        specs: list[OutputSpec] = [(shape, value.dtype, layout)] if with_value else []
        specs.append((shape, tf.int32, layout, axes))  # cores along these axes have different indices
        return list(planner.compute("argmax", emit, [value], specs, flops=flops))


@language_function
def top_1(x: Tensor, reduced_dim: DimensionLike, name: str | None = None) -> tuple[Tensor, Tensor]:
    """The maximum along a dimension, and the int32 index of the first element that has it.

    Gradients flow to that element.

    NaN counts as -inf, and becomes -inf.

    Raises:
      ShapeError: x lacks the dimension, or it has size 0.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> best, index = mtf.top_1(mtf.constant(mesh, [1.0, 3.0, 3.0], "vocab:3"), "vocab")
      >>> value(best), value(index)
      (np.float32(3.0), np.int32(1))
    """
    value, index = _top_one(x, reduced_dim, True, name or "top_1")
    return value, index


@language_function
def argmax(x: Tensor, reduced_dim: DimensionLike, name: str | None = None) -> Tensor:
    """The int32 index of the first maximum along a dimension. NaN counts as -inf.

    Raises:
      ShapeError: x lacks the dimension, or it has size 0.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> value(mtf.argmax(mtf.constant(mesh, [1.0, 3.0, 3.0], "vocab:3"), "vocab"))
      np.int32(1)
      >>> mtf.argmax(x, "hidden")
      argmax_1 [batch:4] int32
    """
    return _top_one(x, reduced_dim, False, name or "argmax")[0]


@language_function
def argmin(x: Tensor, reduced_dim: DimensionLike, name: str | None = None) -> Tensor:
    """The int32 index of the first minimum along a dimension. NaN counts as inf.

    Raises:
      ShapeError: x lacks the dimension, or it has size 0.
      DtypeError: x has no order (bool, complex).

    Examples:
      >>> value(mtf.argmin(mtf.constant(mesh, [3.0, 1.0, 1.0], "vocab:3"), "vocab"))
      np.int32(1)
    """
    if check_tensor(x).dtype.is_integer:
        # -1 - x reverses the order of all signed integers. The negative of the lowest one would overflow.
        x = sub(x.dtype.max if x.dtype.is_unsigned else -1, x)
    elif x.dtype.is_floating:
        x = negative(x)
    return _top_one(x, reduced_dim, False, name or "argmin", "smallest")[0]


def _top_one(
    x: Tensor, reduced_dim: DimensionLike, with_value: bool, name: str, wanted: str = "largest"
) -> tuple[Tensor, ...]:
    """The largest element and its index. `wanted` is the element that the user asks for, as messages call it."""
    dim = reduced_dimension(check_tensor(x), reduced_dim)
    if x.dtype == tf.bool or x.dtype.is_complex:
        raise DtypeError(f"{x.dtype.name} has no {wanted} element; convert with mtf.cast")
    if not dim.size:
        raise ShapeError(f'dimension "{dim.name}" has size 0 and no {wanted} element')
    return TopOneOperation(x, dim.name, with_value=with_value, name=name).outputs
