"""Softmax, its logarithm, and the logarithm of a sum of exponentials, exact even if the dimension is split.

Each core subtracts the maximum of all cores, and sums its own exponentials. Two small allreduces are enough: a maximum
and a sum. For x = 1 3 | 2 on two cores, the maximum is 3, the cores' sums are e^-2 + e^0 and e^-1, and their total
divides every term.

Elements of -inf have probability 0. A row of only -inf gives NaN, as in TensorFlow, and so does a row with inf.
`reduce_logsumexp` gives -inf and inf for these rows; its gradients are 0 and NaN. float16 and bfloat16 are summed in
float32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.layout import restricted, without_split
from meshtf.ops.algebra.arithmetic import multiply, sub
from meshtf.ops.algebra.broadcasting import aligner, union
from meshtf.ops.algebra.reduction import reduce_sum, reduced_dimension, sum_to
from meshtf.ops.algebra.transpose_and_broadcast import broadcast
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import equal
from meshtf.ops.elementwise.math_functions import exp
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import constant
from meshtf.ops.inputs.scalars import Operand, is_scalar
from meshtf.planning.layouts.padding import LOWEST, Fill
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner


class SoftmaxOperation(Operation):
    """exp(x) / sum(exp(x)) along a dimension, or its logarithm."""

    takes_padding = True
    mapped = "by name"

    def __init__(self, x: Tensor, dim_name: str, *, is_log: bool, name: str) -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.dim_name = dim_name
        self.is_log = is_log

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (y,), (dy,) = self.outputs, grad_ys
        assert dy is not None
        if self.is_log:
            total = reduce_sum(dy, reduced_dim=self.dim_name)
            return [sub(dy, multiply(exp(y), total, output_shape=y.shape))]
        # The gradient needs only the result y, so x need not be kept.
        mean = reduce_sum(multiply(dy, y), reduced_dim=self.dim_name)
        return [multiply(y, sub(dy, mean, output_shape=y.shape))]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = planner.read(self.inputs[0], planner.layouts[output], Fill(LOWEST, frozenset([self.dim_name])))
        axis = output.shape.axis(self.dim_name)
        is_split = bool(value.layout.axes[axis])
        planner.write(output, self._over_cores(planner, value) if is_split else self._locally(planner, value, axis))

    def _locally(self, planner: Planner, value: Value, axis: int) -> Value:
        function = tf.nn.log_softmax if self.is_log else tf.nn.softmax
        last_to_axis = list(range(len(value.slice_shape)))
        last_to_axis[axis], last_to_axis[-1] = last_to_axis[-1], last_to_axis[axis]
        is_last = axis == len(last_to_axis) - 1

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            wide = _widened(x if is_last else tf.transpose(x, last_to_axis))
            rows = tf.reshape(
                wide, [math.prod(wide.shape[:-1]), wide.shape[-1]]
            )  # the CPU's kernel takes five dimensions at most
            y = tf.reshape(_cast(function(rows), x.dtype), wide.shape)
            return y if is_last else tf.transpose(y, last_to_axis)

        size = math.prod(value.slice_shape)
        spec, facts = (value.shape, value.dtype, value.layout), WorkFacts(transcendentals=size)
        return planner.compute("softmax", emit, [value], [spec], flops=4 * size, facts=facts)[0]

    def _over_cores(self, planner: Planner, value: Value) -> Value:
        statistics = _Statistics(planner, value, self.dim_name)
        # Without subtracting the maximum of the whole row, exp would overflow. It must be the same on all cores.
        top, is_log, wide = statistics.maximum(), self.is_log, _wide(value.dtype)

        def emit_terms(core: Core, x: tf.Tensor, top: tf.Tensor) -> list[tf.Tensor]:
            centred = _widened(x) - _cast(top, wide)
            terms = tf.exp(centred)
            return [centred if is_log else terms, tf.reduce_sum(terms, statistics.axis, keepdims=True)]

        def emit(core: Core, terms: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
            return _cast(terms - tf.math.log(total) if is_log else terms / total, value.dtype)

        specs = [(value.shape, wide, value.layout), (statistics.shape, wide, statistics.layout)]
        size = math.prod(value.slice_shape)
        facts = WorkFacts(transcendentals=size)
        terms, own = planner.compute("softmax terms", emit_terms, [value, top], specs, flops=3 * size, facts=facts)
        total = planner.all_reduce(own, statistics.axes, "add")
        spec = (value.shape, value.dtype, value.layout)
        return planner.compute("softmax", emit, [terms, total], [spec], flops=size)[0]


class LogSumExpOperation(Operation):
    """log(sum(exp(x))) along a dimension, in a given dtype. `extra` (a second input) is one more term of each sum."""

    takes_padding = True
    mapped = "all inputs"

    def __init__(self, x: Tensor, extra: Tensor | None, dim_name: str, dtype: tf.DType, name: str) -> None:
        shape = Shape([d for d in x.shape if d.name != dim_name])
        super().__init__([x] if extra is None else [x, extra], [(shape, dtype)], name=name)
        self.dim_name = dim_name

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (y,), (dy,) = self.outputs, grad_ys
        assert dy is not None
        x, *extra = self.inputs
        y = where(equal(y, -math.inf), 0.0, y)  # exp(x - y) is then 0, not NaN
        wide = [cast(x, y.dtype), *(cast(e, y.dtype) for e in extra)]
        shapes = [x.shape, *(y.shape for _ in extra)]
        found = [
            multiply(dy, exp(sub(t, y, output_shape=s)), output_shape=s) for t, s in zip(wide, shapes, strict=True)
        ]
        return [sum_to(cast(g, t.dtype), t.shape) for g, t in zip(found, self.inputs, strict=True)]

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        value = planner.read(self.inputs[0], fill=Fill(LOWEST, frozenset([self.dim_name])))
        layout = restricted(value.layout, value.shape, output.shape)
        extra = [planner.read(e, restricted(layout, output.shape, e.shape), None) for e in self.inputs[1:]]
        statistics = _Statistics(planner, value, self.dim_name)
        top, size = statistics.maximum(extra, is_finite=True), layout.slice_shape(output.shape, planner.mesh_shape)
        total, wide = statistics.sum_of_exponentials(top), _wide(value.dtype)
        align = [aligner(e.shape, statistics.shape) for e in extra]

        def emit(core: Core, top: tf.Tensor, total: tf.Tensor, *extra: tf.Tensor) -> tf.Tensor:
            top = _cast(top, wide)
            for aligned, e in zip(align, extra, strict=True):
                total = total + tf.exp(_widened(aligned(e)) - top)
            return tf.reshape(_cast(tf.math.log(total) + top, output.dtype), size)

        spec = (output.shape, output.dtype, layout)
        (result,) = planner.compute("logsumexp", emit, [top, total, *extra], [spec], flops=2 * math.prod(size))
        planner.write(output, result)


class _Statistics:
    """Reductions along a dimension that may be split. The results keep the dimension, with size 1."""

    def __init__(self, planner: Planner, value: Value, dim_name: str) -> None:
        self._planner = planner
        self._value = value
        self.axis = value.shape.axis(dim_name)
        self.axes = value.layout.axes[self.axis]
        self.shape = value.shape.resize_dimension(dim_name, 1)
        self.layout = without_split(value.layout, value.shape, dim_name)

    def maximum(self, extra: Sequence[Value] = (), *, is_finite: bool = False) -> Value:
        """The maximum, with `extra`. If `is_finite`, infinities become the largest finite numbers."""
        value, align = self._value, [aligner(e.shape, self.shape) for e in extra]
        spec, flops = (self.shape, value.dtype, self.layout), math.prod(value.slice_shape)
        (own,) = self._planner.compute(
            "max", lambda core, x: tf.reduce_max(x, self.axis, keepdims=True), [value], [spec], flops=flops
        )
        top = self._planner.all_reduce(own, self.axes, "max")

        def emit(core: Core, top: tf.Tensor, *extra: tf.Tensor) -> tf.Tensor:
            for aligned, e in zip(align, extra, strict=True):
                top = tf.maximum(top, aligned(e))
            limits = [tf.constant(limit, top.dtype) for limit in (top.dtype.min, top.dtype.max)]
            return tf.raw_ops.ClipByValue(t=top, clip_value_min=limits[0], clip_value_max=limits[1])

        return self._planner.compute("max", emit, [top, *extra], [spec])[0] if extra or is_finite else top

    def sum_of_exponentials(self, top: Value) -> Value:
        """The sum of exp(x - top)."""
        value, wide = self._value, _wide(self._value.dtype)

        def emit(core: Core, x: tf.Tensor, top: tf.Tensor) -> tf.Tensor:
            return tf.reduce_sum(tf.exp(_widened(x) - _cast(top, wide)), self.axis, keepdims=True)

        size = math.prod(value.slice_shape)
        spec, facts = (self.shape, wide, self.layout), WorkFacts(transcendentals=size)
        inputs = [value, top]
        (own,) = self._planner.compute("sum of exponentials", emit, inputs, [spec], flops=3 * size, facts=facts)
        return self._planner.all_reduce(own, self.axes, "add")


@language_function
def reduce_logsumexp(
    x: Tensor,
    reduced_dim: DimensionLike,
    extra_logit: Operand | None = None,
    name: str | None = None,
    *,
    dtype: tf.DType | None = None,
) -> Tensor:
    """log(sum(exp(x))) along a dimension, which the result lacks.

    If all elements are -inf, the result is -inf and its gradient is 0.

    Args:
      x: a floating tensor.
      reduced_dim: a dimension of x.
      extra_logit: a number, or a tensor without the dimension: one more element of every row. It has a gradient.
      name: the operation's name.
      dtype: the result's dtype, by default x's. Sums of bfloat16 are taken in float32, which tf.float32 keeps.

    Raises:
      ShapeError: x lacks the dimension, or `extra_logit` has it.
      DtypeError: x or `dtype` is not floating, or `extra_logit` is of another dtype.

    Examples:
      >>> value(mtf.reduce_logsumexp(mtf.constant(mesh, [1000.0, 1000.0], "n:2"), "n")).round(3)
      np.float32(1000.693)
    """
    x, dim = _checked(x, reduced_dim)
    extra = None if extra_logit is None else _extra_tensor(x, extra_logit, dim)
    if extra is not None:
        x = broadcast(x, union([x.shape, extra.shape]))
    own: tf.DType = x.dtype if dtype is None else tf.as_dtype(dtype)
    if not own.is_floating:
        raise DtypeError(f"the logarithm of a sum needs a floating dtype, not {own.name}")
    return LogSumExpOperation(x, extra, dim.name, own, name or "reduce_logsumexp").outputs[0]


@language_function
def log_softmax(
    x: Tensor, reduced_dim: DimensionLike, extra_logit: Operand | None = None, name: str | None = None
) -> Tensor:
    """The logarithm of `softmax`. It is precise even where the softmax is too small for its dtype.

    Args:
      x: floating.
      reduced_dim: a dimension of x.
      extra_logit: a number, or a tensor without the dimension, whose exponential adds to the sum.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or `extra_logit` has it.
      DtypeError: x is not floating, or `extra_logit` is of another dtype.

    Examples:
      >>> value(mtf.log_softmax(mtf.constant(mesh, [0.0, -1000.0], "vocab:2"), "vocab"))
      array([    0., -1000.], dtype=float32)
    """
    x, dim = _checked(x, reduced_dim)
    if extra_logit is None:
        return SoftmaxOperation(x, dim.name, is_log=True, name=name or "log_softmax").outputs[0]
    total = reduce_logsumexp(x, dim, extra_logit)
    return sub(x, total, output_shape=union([x.shape, total.shape]), name=name or "log_softmax")


@language_function
def softmax(
    x: Tensor, reduced_dim: DimensionLike, extra_logit: Operand | None = None, name: str | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along a dimension.

    A row with a NaN or +inf has NaN in that place on every mesh. Its other places have whatever the kernel computes.

    Args:
      x: floating.
      reduced_dim: a dimension of x.
      extra_logit: a number, or a tensor without the dimension, whose exponential adds to the sum, so that a row
        adds up to less than 1.
      name: the operation's name.

    Raises:
      ShapeError: x lacks the dimension, or `extra_logit` has it.
      DtypeError: x is not floating, or `extra_logit` is of another dtype.

    Examples:
      >>> logits = mtf.constant(mesh, [0.0, 0.0], "vocab:2")
      >>> value(mtf.softmax(logits, "vocab"))
      array([0.5, 0.5], dtype=float32)
      >>> value(mtf.softmax(logits, "vocab", extra_logit=np.log(2.0))).round(3)
      array([0.25, 0.25], dtype=float32)
    """
    x, dim = _checked(x, reduced_dim)
    if extra_logit is None:
        return SoftmaxOperation(x, dim.name, is_log=False, name=name or "softmax").outputs[0]
    return exp(log_softmax(x, dim, extra_logit), name=name or "softmax")


def _checked(x: Tensor, reduced_dim: DimensionLike) -> tuple[Tensor, Dimension]:
    dim = reduced_dimension(check_tensor(x), reduced_dim)
    if not x.dtype.is_floating:
        raise DtypeError(f"a floating tensor is needed, not {x.dtype.name}; convert with mtf.cast")
    return x, dim


def _extra_tensor(x: Tensor, extra_logit: Operand, dim: Dimension) -> Tensor:
    extra = constant(x.mesh, extra_logit, dtype=x.dtype) if is_scalar(extra_logit) else check_tensor(extra_logit)
    same_dtype([x, extra])
    if extra.shape.has(dim):
        raise ShapeError(
            f'extra_logit [{extra.shape}] must not have dimension "{dim.name}"; it has one element for each row'
        )
    return extra


def _wide(dtype: tf.DType) -> tf.DType:
    """The dtype in which sums are taken."""
    return tf.float32 if dtype in (tf.float16, tf.bfloat16) else dtype


def _widened(x: tf.Tensor) -> tf.Tensor:
    return _cast(x, _wide(x.dtype))


def _cast(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return x if x.dtype == dtype else tf.cast(x, dtype)
