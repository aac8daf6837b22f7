"""Functions of single elements: exponentials, logarithms, roots, sines, sigmoids and rounding."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import divide, multiply, negative, reciprocal, square, sub
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation, conjugate
from meshtf.ops.elementwise.comparisons import equal, greater
from meshtf.ops.elementwise.unary_and_binary import unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import NUMBER, REAL
from meshtf.ops.inputs.constants import zeros_like
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def exp(x: Tensor, name: str = "exp") -> Tensor:
    """e to the power x.

    Examples:
      >>> value(mtf.exp(mtf.zeros(mesh, "n:2")))
      array([1., 1.], dtype=float32)
    """
    return unary(x, name, tf.exp, lambda x, y: y)


@language_function
def expm1(x: Tensor, name: str = "expm1") -> Tensor:
    """e to the power x, minus 1. It is precise for small x.

    Examples:
      >>> tiny = mtf.fill(mesh, 1e-8, "n:1")
      >>> value(mtf.expm1(tiny)), value(mtf.exp(tiny) - 1.0)
      (array([1.e-08], dtype=float32), array([0.], dtype=float32))
    """
    return unary(x, name, tf.math.expm1, lambda x, y: exp(x))


@language_function
def log(x: Tensor, name: str = "log") -> Tensor:
    """The natural logarithm of x.

    Examples:
      >>> value(mtf.log(mtf.constant(mesh, [1.0, 0.0], "n:2")))
      array([  0., -inf], dtype=float32)
    """
    return unary(x, name, tf.math.log, lambda x, y: reciprocal(x))


@language_function
def log1p(x: Tensor, name: str = "log1p") -> Tensor:
    """The natural logarithm of 1 + x. It is precise for small x.

    Examples:
      >>> tiny = mtf.fill(mesh, 1e-8, "n:1")
      >>> value(mtf.log1p(tiny)), value(mtf.log(1.0 + tiny))
      (array([1.e-08], dtype=float32), array([0.], dtype=float32))
    """
    return unary(x, name, tf.math.log1p, lambda x, y: reciprocal(x + 1.0))


@language_function
def sqrt(x: Tensor, name: str = "sqrt") -> Tensor:
    """The square root of x.

    Its slope at 0 is infinite, so the root of a sum of squares has gradient NaN if all are 0. `mtf.norm` has 0 there.

    Examples:
      >>> value(mtf.sqrt(mtf.constant(mesh, [4.0, 9.0], "n:2")))
      array([2., 3.], dtype=float32)
    """
    return unary(x, name, tf.sqrt, lambda x, y: divide(0.5, y))


@language_function
def rsqrt(x: Tensor, name: str = "rsqrt") -> Tensor:
    """1 over the square root of x.

    Examples:
      >>> value(mtf.rsqrt(mtf.constant(mesh, [4.0, 16.0], "n:2")))
      array([0.5 , 0.25], dtype=float32)
    """
    return unary(x, name, tf.math.rsqrt, lambda x, y: divide(y * -0.5, x))


@language_function
def sin(x: Tensor, name: str = "sin") -> Tensor:
    """The sine of x, in radians.

    Examples:
      >>> value(mtf.sin(mtf.constant(mesh, [0.0, np.pi / 2], "n:2")))
      array([0., 1.], dtype=float32)
    """
    return unary(x, name, tf.sin, lambda x, y: cos(x))


@language_function
def cos(x: Tensor, name: str = "cos") -> Tensor:
    """The cosine of x, in radians.

    Examples:
      >>> value(mtf.cos(mtf.constant(mesh, [0.0, np.pi], "n:2")))
      array([ 1., -1.], dtype=float32)
    """
    return unary(x, name, tf.cos, lambda x, y: negative(sin(x)))


@language_function
def tanh(x: Tensor, name: str = "tanh") -> Tensor:
    """The hyperbolic tangent of x.

    Examples:
      >>> value(mtf.tanh(mtf.constant(mesh, [-20.0, 0.0, 20.0], "n:3")))
      array([-1.,  0.,  1.], dtype=float32)
    """
    return unary(x, name, tf.tanh, lambda x, y: 1.0 - square(y))


@language_function
def sigmoid(x: Tensor, name: str = "sigmoid") -> Tensor:
    """1 / (1 + exp(-x)).

    Examples:
      >>> value(mtf.sigmoid(mtf.constant(mesh, [-100.0, 0.0, 100.0], "n:3"))).round(3)
      array([0. , 0.5, 1. ], dtype=float32)
    """
    return unary(x, name, tf.sigmoid, lambda x, y: y * (1.0 - y))


@language_function
def softplus(x: Tensor, name: str = "softplus") -> Tensor:
    """log(1 + exp(x)).

    Examples:
      >>> value(mtf.softplus(mtf.constant(mesh, [-20.0, 20.0], "n:2"))).round(3)
      array([ 0., 20.], dtype=float32)
    """
    return unary(x, name, _SOFTPLUS, lambda x, y: sigmoid(x), REAL)


@language_function
def erf(x: Tensor, name: str = "erf") -> Tensor:
    """The Gauss error function of x.

    Examples:
      >>> value(mtf.erf(mtf.constant(mesh, [-9.0, 0.0, 9.0], "n:3")))
      array([-1.,  0.,  1.], dtype=float32)
    """
    if check_tensor(x).dtype == tf.float64:  # far from 0, TensorFlow's result is NaN instead of 1 or -1
        x = where(greater(abs(x), 30), 30 * sign(x), x)
    return unary(x, name, tf.math.erf, lambda x, y: (2 / np.sqrt(np.pi)) * exp(negative(square(x))), REAL)


def _real_sign(x: tf.Tensor) -> tf.Tensor:
    """The sign of real numbers. TensorFlow has no kernel for unsigned integers."""
    return tf.cast(tf.not_equal(x, 0), x.dtype) if x.dtype.is_unsigned else tf.sign(x)


@language_function
def sign(x: Tensor, name: str = "sign") -> Tensor:
    """-1, 0 or 1 for negative numbers, zeros and positive numbers; x / abs(x), or 0, for complex ones.

    Examples:
      >>> value(mtf.sign(mtf.constant(mesh, [-2.0, 0.0, 3.0], "n:3")))
      array([-1.,  0.,  1.], dtype=float32)
    """
    if not check_tensor(x).dtype.is_complex:
        return unary(x, name, _real_sign, lambda x, y: zeros_like(x), NUMBER)

    def gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor]:
        """The part of dy that turns the number; the part that makes it longer is lost. 1 / abs(x) is sign(x) / x."""
        (x,), (y,) = op.inputs, op.outputs
        inverse = divide(y, where(equal(x, 0), 1, x))
        return [multiply(multiply(sub(dy, multiply(square(y), conjugate(dy))), inverse), 0.5)]

    return ElementwiseOperation(name, tf.sign, [x], gradient=gradient).outputs[0]


@language_function
def floor(x: Tensor, name: str = "floor") -> Tensor:
    """The largest integer not above x, in the dtype of x. It has no gradient.

    Examples:
      >>> value(mtf.floor(mtf.constant(mesh, [-1.5, 1.5], "n:2")))
      array([-2.,  1.], dtype=float32)
    """
    return unary(x, name, tf.floor, None, REAL)


@language_function
def ceil(x: Tensor, name: str = "ceil") -> Tensor:
    """The smallest integer not below x, in the dtype of x. It has no gradient.

    Examples:
      >>> value(mtf.ceil(mtf.constant(mesh, [-1.5, 1.5], "n:2")))
      array([-1.,  2.], dtype=float32)
    """
    return unary(x, name, tf.math.ceil, None, REAL)


@language_function
def round(x: Tensor, name: str = "round") -> Tensor:
    """The nearest integer, halves to even, in the dtype of x. It has no gradient.

    Examples:
      >>> value(mtf.round(mtf.constant(mesh, [0.5, 1.5, 1.6], "n:3")))
      array([0., 2., 2.], dtype=float32)
    """
    return unary(x, name, tf.round, None, REAL)


def _is_finite(x: tf.Tensor) -> tf.Tensor:
    if x.dtype.is_complex:
        return tf.logical_and(tf.math.is_finite(tf.math.real(x)), tf.math.is_finite(tf.math.imag(x)))
    return tf.math.is_finite(x) if x.dtype.is_floating else tf.ones_like(x, tf.bool)


@language_function
def is_finite(x: Tensor, name: str = "is_finite") -> Tensor:
    """Whether x is neither NaN nor infinite: bool.

    Examples:
      >>> value(mtf.is_finite(mtf.constant(mesh, [1.0, np.inf, np.nan], "n:3")))
      array([ True, False, False])
    """
    return ElementwiseOperation(name, _is_finite, [check_tensor(x)], output_dtype=tf.bool).outputs[0]


# For narrow dtypes, TensorFlow returns x itself above about 3. This leaves out exp(-x), six times the rounding error.
_SOFTPLUS = WideKernel(tf.math.softplus)
