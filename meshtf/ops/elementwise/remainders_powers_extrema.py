"""Integer quotients, remainders, powers, and the larger or smaller of two numbers."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.errors import UsageError
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra import wrapping_integers
from meshtf.ops.algebra.arithmetic import multiply, negative
from meshtf.ops.algebra.slopes import times_slope
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import (
    greater,
    greater_equal,
    less,
    less_equal,
    not_equal,
)
from meshtf.ops.elementwise.math_functions import log
from meshtf.ops.elementwise.unary_and_binary import binary, tensors_of_one_dtype
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import ORDERED, SIGNED
from meshtf.ops.inputs.scalars import Operand, is_scalar
from meshtf.planning.local_work import extrema
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def floordiv(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The largest integer not above x1 / x2, broadcast by name. It has no gradient.

    Dividing an integer by 0 ends the step with TensorFlow's InvalidArgumentError. If XLA compiles the step, it raises
    no errors, and the result has no meaning. Padding of a split dimension causes no such division.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> value(mtf.floordiv(mtf.constant(mesh, [-3, 3], "n:2", tf.int32), 2))
      array([-2,  1], dtype=int32)
    """
    _check_divisor(x1, x2)
    return binary(x1, x2, output_shape, name or "floordiv", _floor_of_quotient, accepts=ORDERED)


@language_function
def mod(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 - floordiv(x1, x2) * x2, broadcast by name. It has the sign of x2.

    For floating numbers it is exact, and rounded once: -1e-8 mod 1 is 1 in float32. Integers mod 0 end the step as in
    `floordiv`.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> value(mtf.mod(mtf.constant(mesh, [-3, 3], "n:2", tf.int32), 2))
      array([1, 1], dtype=int32)
    """
    _check_divisor(x1, x2)
    return binary(
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
    """The larger of two numbers, or NaN if one is NaN, broadcast by name.

    If they are equal, the first gets the gradient.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> value(mtf.maximum(mtf.range(mesh, ("n", 4)), 2))
      array([2, 2, 2, 3], dtype=int32)
      >>> mtf.maximum(x, mtf.zeros(mesh, "hidden:8"))
      maximum_1 [batch:4 hidden:8] float32
    """
    return binary(
        x1,
        x2,
        output_shape,
        name or "maximum",
        extrema.maximum_with_number if _is_number(x2) else extrema.maximum,
        slopes=lambda x1, x2, y: (_indicator(greater_equal(x1, x2), x1), _indicator(less(x1, x2), x1)),
        accepts=ORDERED,
    )


@language_function
def minimum(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The smaller of two numbers, or NaN if one is NaN, broadcast by name.

    If they are equal, the first gets the gradient.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> value(mtf.minimum(mtf.range(mesh, ("n", 4)), 2))
      array([0, 1, 2, 2], dtype=int32)
      >>> mtf.minimum(x, mtf.ones(mesh, "batch:4"))
      minimum_1 [batch:4 hidden:8] float32
    """
    return binary(
        x1,
        x2,
        output_shape,
        name or "minimum",
        extrema.minimum_with_number if _is_number(x2) else extrema.minimum,
        slopes=lambda x1, x2, y: (_indicator(less_equal(x1, x2), x1), _indicator(greater(x1, x2), x1)),
        accepts=ORDERED,
    )


@language_function
def pow(x: Operand, y: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x to the power y, broadcast by name. Bases may be negative.

    The gradient of the exponent is 0 where the base is not positive.

    Args:
      x: a tensor, or a number, which takes the dtype of the other.
      y: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or unsigned.
      UsageError: a negative power of integers.

    Examples:
      >>> value(mtf.pow(mtf.range(mesh, ("n", 4)), 2))
      array([0, 1, 4, 9], dtype=int32)
      >>> 2.0**x
      pow_1 [batch:4 hidden:8] float32
    """
    if isinstance(x, Tensor) and x.dtype.is_integer and is_scalar(y) and y < 0:  # type: ignore[operator]
        raise UsageError(f"{x.dtype.name} has no negative powers, such as {y}; convert with mtf.cast")
    base, power = tensors_of_one_dtype(x, y)
    return binary(
        base,
        power,
        output_shape,
        name or "pow",
        wrapping_integers.power if base.dtype.is_integer else tf.pow,
        slopes=lambda base, power, z: (_base_slope(base, y if is_scalar(y) else power), _exponent_slope(base, z)),
        accepts=SIGNED,  # TensorFlow has no powers of unsigned integers
    )


def _base_slope(x1: Tensor, x2: Operand) -> Operand:
    """x2 * x1^(x2 - 1), and 0 for 0^0: x1^0 is 1 for every x1, but 0 * 0^-1 would be NaN."""
    if not isinstance(x2, Tensor):
        # The case is handled here, because TensorFlow's complex 0^0 is NaN.
        return x2 if x2 in (0, 1) else multiply(pow(x1, x2 - 1), x2)  # type: ignore[operator]
    return times_slope(x2, pow(x1, x2 - 1))


def _exponent_slope(x1: Tensor, y: Tensor) -> Tensor:
    """y * log(x1), and 0 where x1 has no logarithm, whatever y is there: 0^-1 is infinite."""
    has_log = not_equal(x1, 0) if x1.dtype.is_complex else greater(x1, 0)
    return multiply(where(has_log, y, 0, output_shape=y.shape), log(where(has_log, x1, 1)))


def _floor_of_quotient(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    """The floor of the exact quotient, in float32 at least.

    TensorFlow takes the floor of the rounded quotient. In float32, 1 / 0.2 rounds to 5, but 0.2 is stored as slightly
    more than 0.2: it fits in 4 times, and 1 mod 0.2 is nearly 0.2.
    """
    return _FLOOR_OF_FLOATS(x1, x2) if x1.dtype.is_floating else tf.math.floordiv(x1, x2)


def _floor_of_floats(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    quotient = tf.round((x1 - tf.math.floormod(x1, x2)) / x2)
    return tf.where(tf.math.is_finite(quotient), quotient, tf.math.floordiv(x1, x2))


_FLOOR_OF_FLOATS = WideKernel(_floor_of_floats)


def _indicator(condition: Tensor, like: Tensor) -> Tensor:
    return cast(condition, like.dtype)


@language_function
def clip_by_value(x: Tensor, clip_value_min: Operand, clip_value_max: Operand) -> Tensor:
    """x limited to [clip_value_min, clip_value_max]. Outside, no gradient flows to x.

    Examples:
      >>> value(mtf.clip_by_value(mtf.range(mesh, ("n", 5)), 1, 3))
      array([1, 1, 2, 3, 3], dtype=int32)
    """
    if is_scalar(clip_value_min) and is_scalar(clip_value_max) and clip_value_min > clip_value_max:  # type: ignore[operator]
        raise UsageError(f"clip_value_min is {clip_value_min}, above clip_value_max, {clip_value_max}; swap them")
    return minimum(maximum(x, clip_value_min), clip_value_max)


def _is_number(x2: Operand) -> bool:
    """Whether an operand is a known number other than NaN.

    XLA makes a known operand the second of the two, and so keeps the NaNs of x1.
    """
    return is_scalar(x2) and x2 == x2


def _check_divisor(x1: Operand, x2: Operand) -> None:
    if isinstance(x1, Tensor) and x1.dtype.is_integer and is_scalar(x2) and x2 == 0:
        raise UsageError(f"{x1.dtype.name} cannot be divided by 0")
