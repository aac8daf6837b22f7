"""Elementwise functions and comparisons, generated from tables of kernel and gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike, convert_to_shape
from meshtf.graph import Tensor, check_tensor, dtype_of, is_differentiable, same_dtype
from meshtf.ops.algebra.arithmetic import divide, multiply, negative, reciprocal, square
from meshtf.ops.algebra.pointwise import CastKernel, PointwiseOperation, conjugate
from meshtf.ops.inputs.accepted_dtypes import ANY, BOOL, FLOATING, NUMBER, ORDERED, REAL, require
from meshtf.ops.inputs.inputs import constant, zeros_like
from meshtf.ops.inputs.scalars import Operand, is_scalar, scalar_constant
from meshtf.planning.plan import Kernel


def _conjugated(slope: Operand) -> Operand:
    return conjugate(slope) if isinstance(slope, Tensor) else slope


def _unary(
    x: Tensor,
    name: str,
    kernel: Kernel,
    slope: Callable[[Tensor, Tensor], Any] | None,
    accepts: str = FLOATING,
) -> Tensor:
    """An elementwise function of one tensor; `slope(x, y)` is its derivative, a tensor or scalar, or None."""
    require(check_tensor(x), accepts)

    def gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
        assert slope is not None
        return [multiply(dy, _conjugated(slope(op.inputs[0], op.outputs[0])))]

    return PointwiseOperation(name, kernel, [x], gradient=gradient if slope is not None else None).outputs[0]


@language_function
def exp(x: Tensor, name: str = "exp") -> Tensor:
    """e to the x."""
    return _unary(x, name, tf.exp, lambda x, y: y)


@language_function
def expm1(x: Tensor, name: str = "expm1") -> Tensor:
    """e to the x, less 1."""
    return _unary(x, name, tf.math.expm1, lambda x, y: exp(x))


@language_function
def log(x: Tensor, name: str = "log") -> Tensor:
    """Natural logarithm."""
    return _unary(x, name, tf.math.log, lambda x, y: reciprocal(x))


@language_function
def log1p(x: Tensor, name: str = "log1p") -> Tensor:
    """Natural logarithm of 1 + x."""
    return _unary(x, name, tf.math.log1p, lambda x, y: reciprocal(x + 1.0))


@language_function
def sqrt(x: Tensor, name: str = "sqrt") -> Tensor:
    """Square root."""
    return _unary(x, name, tf.sqrt, lambda x, y: divide(0.5, y))


@language_function
def rsqrt(x: Tensor, name: str = "rsqrt") -> Tensor:
    """1 over the square root."""
    return _unary(x, name, tf.math.rsqrt, lambda x, y: -0.5 * divide(y, x))


@language_function
def sin(x: Tensor, name: str = "sin") -> Tensor:
    """Sine."""
    return _unary(x, name, tf.sin, lambda x, y: cos(x))


@language_function
def cos(x: Tensor, name: str = "cos") -> Tensor:
    """Cosine."""
    return _unary(x, name, tf.cos, lambda x, y: negative(sin(x)))


@language_function
def tanh(x: Tensor, name: str = "tanh") -> Tensor:
    """Hyperbolic tangent."""
    return _unary(x, name, tf.tanh, lambda x, y: 1.0 - square(y))


@language_function
def sigmoid(x: Tensor, name: str = "sigmoid") -> Tensor:
    """1 / (1 + exp(-x))."""
    return _unary(x, name, tf.sigmoid, lambda x, y: y * (1.0 - y))


@language_function
def softplus(x: Tensor, name: str = "softplus") -> Tensor:
    """log(1 + exp(x))."""
    return _unary(x, name, tf.math.softplus, lambda x, y: sigmoid(x), REAL)


@language_function
def erf(x: Tensor, name: str = "erf") -> Tensor:
    """Gauss error function."""
    return _unary(x, name, tf.math.erf, lambda x, y: (2 / np.sqrt(np.pi)) * exp(negative(square(x))), REAL)


def _relu_gradient(dy: Tensor, y: Tensor) -> Tensor:
    """dy where y is positive, else 0, in one kernel."""
    return PointwiseOperation(
        "relu_gradient",
        _relu_gradient_kernel,
        [dy, y],
        output_shape=y.shape,
        gradient=lambda op, ddy: (_relu_gradient(ddy, op.inputs[1]), None),
    ).outputs[0]


def _relu_gradient_kernel(gradient: tf.Tensor, feature: tf.Tensor) -> tf.Tensor:
    if gradient.shape != feature.shape:  # of a mean: the kernel does not broadcast by itself
        gradient = tf.broadcast_to(gradient, feature.shape)
    return tf.raw_ops.ReluGrad(gradients=gradient, features=feature)


@language_function
def relu(x: Tensor, name: str = "relu") -> Tensor:
    """max(x, 0)."""
    require(check_tensor(x), ORDERED)
    return PointwiseOperation(
        name, tf.nn.relu, [x], gradient=lambda op, dy: (_relu_gradient(dy, op.outputs[0]),)
    ).outputs[0]


@language_function
def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0) times itself (So et al. 2021)."""
    return square(relu(x))


@language_function
def elu(x: Tensor, name: str = "elu") -> Tensor:
    """x where positive, exp(x) - 1 elsewhere."""
    return _unary(x, name, tf.nn.elu, lambda x, y: where(greater_equal(x, 0.0), 1.0, y + 1.0), REAL)


@language_function
def selu(x: Tensor, name: str = "selu") -> Tensor:
    """Scaled exponential linear unit (Klambauer et al. 2017)."""
    return _unary(
        x,
        name,
        tf.nn.selu,
        lambda x, y: where(greater_equal(x, 0.0), _SELU_SCALE, y + _SELU_SCALE * _SELU_ALPHA),
        REAL,
    )


@language_function
def sign(x: Tensor, name: str = "sign") -> Tensor:
    """-1, 0 or 1."""
    return _unary(x, name, tf.sign, lambda x, y: zeros_like(x), NUMBER)


@language_function
def floor(x: Tensor, name: str = "floor") -> Tensor:
    """Largest integer not above x."""
    return _unary(x, name, tf.floor, None, REAL)


@language_function
def ceil(x: Tensor, name: str = "ceil") -> Tensor:
    """Smallest integer not below x."""
    return _unary(x, name, tf.math.ceil, None, REAL)


@language_function
def round(x: Tensor, name: str = "round") -> Tensor:
    """Nearest integer, halves to even."""
    return _unary(x, name, tf.round, None, REAL)


@language_function
def logical_not(x: Tensor, name: str = "logical_not") -> Tensor:
    """Not x."""
    return _unary(x, name, tf.logical_not, None, BOOL)


def _is_finite(x: tf.Tensor) -> tf.Tensor:
    if x.dtype.is_complex:
        return tf.logical_and(tf.math.is_finite(tf.math.real(x)), tf.math.is_finite(tf.math.imag(x)))
    return tf.math.is_finite(x)


@language_function
def is_finite(x: Tensor, name: str = "is_finite") -> Tensor:
    """Whether x is neither NaN nor infinite: bool."""
    return PointwiseOperation(name, _is_finite, [check_tensor(x)], output_dtype=tf.bool).outputs[0]


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@language_function
def leaky_relu(x: Tensor, alpha: float = 0.2, name: str = "leaky_relu") -> Tensor:
    """x where positive, alpha * x elsewhere."""
    require(check_tensor(x), REAL)
    slope = float(np.float32(alpha))  # as TensorFlow's kernel takes it, whatever the dtype of x
    return PointwiseOperation(
        name,
        functools.partial(tf.nn.leaky_relu, alpha=alpha),
        [x],
        gradient=lambda op, dy: (multiply(dy, where(greater(x, 0.0), 1.0, constant(x.mesh, slope, x.shape, x.dtype))),),
    ).outputs[0]


@language_function
def swish(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


@language_function
def gelu(x: Tensor, approximate: bool = True) -> Tensor:
    """Gaussian error linear unit (Hendrycks and Gimpel 2016), by its tanh approximation unless asked otherwise."""
    if approximate:
        return 0.5 * x * (1.0 + tanh(float(np.sqrt(2 / np.pi)) * (x + 0.044715 * x * square(x))))
    return 0.5 * x * (1.0 + erf(x * float(np.sqrt(0.5))))


def tensors_of_one_dtype(x1: Operand, x2: Operand) -> list[Tensor]:
    """Both as tensors of one dtype; a scalar takes the dtype of the other."""
    first = x1 if isinstance(x1, Tensor) else check_tensor(x2)
    made = [
        constant(first.mesh, scalar_constant(x, first.dtype), dtype=first.dtype) if is_scalar(x) else check_tensor(x)
        for x in (x1, x2)
    ]
    same_dtype(made)
    return made


def _binary(
    x1: Operand,
    x2: Operand,
    output_shape: ShapeLike | None,
    name: str,
    kernel: Kernel,
    *,
    slopes: Callable[[Tensor, Tensor, Tensor], tuple[Any, Any]] | None = None,
    output_dtype: tf.DType | None = None,
    accepts: str = ANY,
) -> Tensor:
    """An elementwise function of two tensors; `slopes(x1, x2, y)` are its derivatives."""
    operands = tensors_of_one_dtype(x1, x2)
    require(operands[0], accepts)

    def gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
        assert slopes is not None
        x1, x2 = op.inputs
        return [multiply(dy, _conjugated(s)) for s in slopes(x1, x2, op.outputs[0])]

    return PointwiseOperation(
        name,
        kernel,
        operands,
        output_shape=convert_to_shape(output_shape),
        output_dtype=output_dtype,
        gradient=gradient if slopes is not None else None,
    ).outputs[0]


@language_function
def less(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 < x2."""
    return _binary(x1, x2, output_shape, name or "less", tf.less, output_dtype=tf.bool, accepts=ORDERED)


@language_function
def less_equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 <= x2."""
    return _binary(x1, x2, output_shape, name or "less_equal", tf.less_equal, output_dtype=tf.bool, accepts=ORDERED)


@language_function
def greater(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 > x2."""
    return _binary(x1, x2, output_shape, name or "greater", tf.greater, output_dtype=tf.bool, accepts=ORDERED)


@language_function
def greater_equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 >= x2."""
    return _binary(
        x1, x2, output_shape, name or "greater_equal", tf.greater_equal, output_dtype=tf.bool, accepts=ORDERED
    )


@language_function
def equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 == x2."""
    return _binary(x1, x2, output_shape, name or "equal", tf.equal, output_dtype=tf.bool)


@language_function
def not_equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 != x2."""
    return _binary(x1, x2, output_shape, name or "not_equal", tf.not_equal, output_dtype=tf.bool)


@language_function
def logical_and(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether both."""
    return _binary(x1, x2, output_shape, name or "logical_and", tf.logical_and, accepts=BOOL)


@language_function
def logical_or(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether either."""
    return _binary(x1, x2, output_shape, name or "logical_or", tf.logical_or, accepts=BOOL)


@language_function
def logical_xor(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether exactly one."""
    return _binary(x1, x2, output_shape, name or "logical_xor", tf.math.logical_xor, accepts=BOOL)


@language_function
def floordiv(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Largest integer not above x1 / x2."""
    return _binary(x1, x2, output_shape, name or "floordiv", tf.math.floordiv, accepts=ORDERED)


@language_function
def mod(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 - floordiv(x1, x2) * x2."""
    return _binary(
        x1,
        x2,
        output_shape,
        name or "mod",
        tf.math.floormod,
        slopes=lambda x1, x2, y: (1.0, negative(floordiv(x1, x2))),
        accepts=ORDERED,
    )


@language_function
def maximum(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The larger. Where both are equal the gradient goes to the first, as in TensorFlow."""
    return _binary(
        x1,
        x2,
        output_shape,
        name or "maximum",
        tf.maximum,
        slopes=lambda x1, x2, y: (_indicator(greater_equal(x1, x2), x1), _indicator(less(x1, x2), x1)),
        accepts=ORDERED,
    )


@language_function
def minimum(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The smaller. Where both are equal the gradient goes to the first, as in TensorFlow."""
    return _binary(
        x1,
        x2,
        output_shape,
        name or "minimum",
        tf.minimum,
        slopes=lambda x1, x2, y: (_indicator(less_equal(x1, x2), x1), _indicator(greater(x1, x2), x1)),
        accepts=ORDERED,
    )


@language_function
def pow(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 to the x2, negative bases included. The gradient for the exponent is 0 where the base is not positive."""
    return _binary(
        x1,
        x2,
        output_shape,
        name or "pow",
        tf.pow,
        slopes=lambda x1, x2, y: (_base_slope(x1, x2), _exponent_slope(x1, y)),
        accepts=NUMBER,
    )


def _base_slope(x1: Tensor, x2: Tensor) -> Tensor:
    return multiply(x2, pow(x1, x2 - 1))


def _exponent_slope(x1: Tensor, y: Tensor) -> Tensor:
    has_log = not_equal(x1, 0) if x1.dtype.is_complex else greater(x1, 0)
    return multiply(y, where(has_log, log(where(has_log, x1, 1)), 0))


def _indicator(condition: Tensor, like: Tensor) -> Tensor:
    return cast(condition, like.dtype)


@language_function
def where(condition: Tensor, if_true: Operand, if_false: Operand, output_shape: ShapeLike | None = None) -> Tensor:
    """`if_true` where the condition holds, else `if_false`. Nothing of the branch not taken leaks, NaN included."""
    require(check_tensor(condition), BOOL)
    if is_scalar(if_true) and is_scalar(if_false):
        if_true = constant(condition.mesh, if_true, dtype=tf.float32)
    first, second = tensors_of_one_dtype(if_true, if_false)

    def gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
        return [None, where(condition, dy, 0), where(condition, 0, dy)]

    return PointwiseOperation(
        "where",
        tf.where,
        [condition, first, second],
        output_shape=convert_to_shape(output_shape),
        output_dtype=first.dtype,
        gradient=gradient,
    ).outputs[0]


@language_function
def clip_by_value(x: Tensor, clip_value_min: Operand, clip_value_max: Operand) -> Tensor:
    """x limited to [clip_value_min, clip_value_max]; outside, no gradient flows to x."""
    return minimum(maximum(x, clip_value_min), clip_value_max)


@language_function
def cast(x: Tensor, dtype: tf.DType, name: str = "cast") -> Tensor:
    """x in another element type. Gradients are cast back."""
    dtype = dtype_of(dtype)
    if check_tensor(x).dtype == dtype:
        return x
    both = is_differentiable(x.dtype) and is_differentiable(dtype)
    source = x.dtype
    return PointwiseOperation(
        name,
        CastKernel(dtype),
        [x],
        output_dtype=dtype,
        gradient=(lambda op, dy: (cast(dy, source),)) if both else None,
    ).outputs[0]


@language_function
def to_float(x: Tensor, name: str = "to_float") -> Tensor:
    """x as float32."""
    return cast(x, tf.float32, name)


@language_function
def to_bfloat16(x: Tensor, name: str = "to_bfloat16") -> Tensor:
    """x as bfloat16."""
    return cast(x, tf.bfloat16, name)


@language_function
def to_int32(x: Tensor, name: str = "to_int32") -> Tensor:
    """x as int32."""
    return cast(x, tf.int32, name)
