"""Tangents, inverse sines and tangents, and hyperbolic functions; `sin`, `cos` and `tanh` are in `math_functions`."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import divide, negative, reciprocal, square
from meshtf.ops.elementwise.comparisons import equal
from meshtf.ops.elementwise.math_functions import rsqrt
from meshtf.ops.elementwise.unary_and_binary import binary, unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import REAL
from meshtf.ops.inputs.scalars import Operand
from meshtf.planning.local_work import extrema
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def tan(x: Tensor, name: str = "tan") -> Tensor:
    """The tangent of x, in radians.

    Examples:
      >>> value(mtf.tan(mtf.constant(mesh, [0.0, np.pi / 4], "n:2"))).round(3)
      array([0., 1.], dtype=float32)
    """
    return unary(x, name, tf.tan, lambda x, y: 1.0 + square(y), REAL)


@language_function
def asin(x: Tensor, name: str = "asin") -> Tensor:
    """The angle in radians, from -π/2 to π/2, whose sine is x. It is NaN outside of [-1, 1].

    Examples:
      >>> value(mtf.asin(mtf.constant(mesh, [0.0, 1.0], "n:2"))).round(3)
      array([0.   , 1.571], dtype=float32)
    """
    return unary(x, name, tf.asin, lambda x, y: rsqrt((1.0 - x) * (1.0 + x)), REAL)


@language_function
def acos(x: Tensor, name: str = "acos") -> Tensor:
    """The angle in radians, from 0 to π, whose cosine is x. It is NaN outside of [-1, 1].

    Examples:
      >>> value(mtf.acos(mtf.constant(mesh, [1.0, -1.0], "n:2"))).round(3)
      array([0.   , 3.142], dtype=float32)
    """
    return unary(x, name, tf.acos, lambda x, y: negative(rsqrt((1.0 - x) * (1.0 + x))), REAL)


@language_function
def atan(x: Tensor, name: str = "atan") -> Tensor:
    """The angle in radians, from -π/2 to π/2, whose tangent is x.

    Examples:
      >>> value(mtf.atan(mtf.constant(mesh, [0.0, np.inf], "n:2"))).round(3)
      array([0.   , 1.571], dtype=float32)
    """
    return unary(x, name, tf.atan, lambda x, y: reciprocal(1.0 + square(x)), REAL)


@language_function
def atan2(y: Operand, x: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The angle of the point (x, y) in radians, from -π to π, broadcast by name.

    At the point (0, 0), where the angle has no gradient, the gradients are 0.

    Args:
      y: a tensor, or a number, which takes the dtype of the other.
      x: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are not real floating ones.

    Examples:
      >>> y, x = mtf.constant(mesh, [0.0, 1.0], "n:2"), mtf.constant(mesh, [-1.0, 0.0], "n:2")
      >>> value(mtf.atan2(y, x)).round(3)
      array([3.142, 1.571], dtype=float32)
    """
    return binary(y, x, output_shape, name or "atan2", tf.atan2, slopes=_angle_slopes, accepts=REAL)


def _angle_slopes(y: Tensor, x: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """x / r² and -y / r². They are divided by r twice, because r² may overflow."""
    root = _length_or_one(y, x, z)
    return divide(divide(x, root), root), negative(divide(divide(y, root), root))


@language_function
def hypot(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """sqrt(x1² + x2²) without overflow, broadcast by name. Its gradients at the point (0, 0) are 0.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are not real floating ones.

    Examples:
      >>> value(mtf.hypot(mtf.constant(mesh, [3.0, 3e30], "n:2"), mtf.constant(mesh, [4.0, 4e30], "n:2")))
      array([5.e+00, 5.e+30], dtype=float32)
    """

    def slopes(x1: Tensor, x2: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        root = where(equal(y, 0.0), 1.0, y)
        return divide(x1, root), divide(x2, root)

    return binary(x1, x2, output_shape, name or "hypot", WideKernel(_hypot), slopes=slopes, accepts=REAL)


def _length_or_one(x1: Tensor, x2: Tensor, like: Tensor) -> Tensor:
    """The length of (x1, x2), and 1 where it is 0."""
    root = hypot(x1, x2, like.shape)
    return where(equal(root, 0.0), 1.0, root)


def _hypot(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    """The larger of the two times sqrt(1 + ratio²)."""
    x1, x2 = tf.abs(x1), tf.abs(x2)
    larger = extrema.maximum(x1, x2)
    ratio = extrema.minimum(x1, x2) / tf.where(tf.equal(larger, 0), tf.ones_like(larger), larger)
    length = larger * tf.sqrt(1 + tf.square(ratio))
    is_infinite = tf.math.is_inf(x1) | tf.math.is_inf(x2)
    return tf.where(is_infinite, tf.constant(float("inf"), length.dtype), length)


@language_function
def sinh(x: Tensor, name: str = "sinh") -> Tensor:
    """The hyperbolic sine of x.

    Examples:
      >>> value(mtf.sinh(mtf.constant(mesh, [0.0, 1.0], "n:2"))).round(3)
      array([0.   , 1.175], dtype=float32)
    """
    return unary(x, name, tf.sinh, lambda x, y: cosh(x), REAL)


@language_function
def cosh(x: Tensor, name: str = "cosh") -> Tensor:
    """The hyperbolic cosine of x.

    Examples:
      >>> value(mtf.cosh(mtf.constant(mesh, [0.0, 1.0], "n:2"))).round(3)
      array([1.   , 1.543], dtype=float32)
    """
    return unary(x, name, tf.cosh, lambda x, y: sinh(x), REAL)


@language_function
def asinh(x: Tensor, name: str = "asinh") -> Tensor:
    """The number whose hyperbolic sine is x.

    Examples:
      >>> value(mtf.asinh(mtf.constant(mesh, [0.0, 1.0], "n:2"))).round(3)
      array([0.   , 0.881], dtype=float32)
    """
    return unary(x, name, tf.asinh, lambda x, y: reciprocal(hypot(x, 1.0)), REAL)


@language_function
def acosh(x: Tensor, name: str = "acosh") -> Tensor:
    """The number, not negative, whose hyperbolic cosine is x. It is NaN below 1.

    Examples:
      >>> value(mtf.acosh(mtf.constant(mesh, [1.0, 2.0], "n:2"))).round(3)
      array([0.   , 1.317], dtype=float32)
    """
    return unary(x, name, tf.acosh, lambda x, y: rsqrt(x - 1.0) * rsqrt(x + 1.0), REAL)


@language_function
def atanh(x: Tensor, name: str = "atanh") -> Tensor:
    """The number whose hyperbolic tangent is x. It is NaN outside of [-1, 1].

    Examples:
      >>> value(mtf.atanh(mtf.constant(mesh, [0.0, 0.5], "n:2"))).round(3)
      array([0.   , 0.549], dtype=float32)
    """
    return unary(x, name, tf.atanh, lambda x, y: reciprocal((1.0 - x) * (1.0 + x)), REAL)
