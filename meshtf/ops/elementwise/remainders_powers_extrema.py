"""Whole quotients, remainders, powers, and the larger or smaller of two."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.errors import UsageError
from meshtf.graph import Tensor
from meshtf.ops.algebra import extrema, wrapping_integers
from meshtf.ops.algebra.arithmetic import multiply, negative
from meshtf.ops.algebra.slopes import times_slope
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import greater, greater_equal, less, less_equal, not_equal
from meshtf.ops.elementwise.math_functions import log
from meshtf.ops.elementwise.unary_and_binary import binary, tensors_of_one_dtype
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import ORDERED, SIGNED
from meshtf.ops.inputs.scalars import Operand, is_scalar


@language_function
def floordiv(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The largest integer not above x1 / x2, broadcast by name. It has no gradient.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; one of the two is a tensor.
      output_shape: the order of the result's dimensions, and perhaps more of them, along which it is repeated.
      name: of the operation.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> value(mtf.floordiv(mtf.constant(mesh, [-3, 3], "n:2", tf.int32), 2))
      array([-2,  1], dtype=int32)
    """
    _check_divisor(x1, x2)
    return binary(x1, x2, output_shape, name or "floordiv", tf.math.floordiv, accepts=ORDERED)


@language_function
def mod(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 - floordiv(x1, x2) * x2, broadcast by name: it has the sign of x2.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; one of the two is a tensor.
      output_shape: the order of the result's dimensions, and perhaps more of them, along which it is repeated.
      name: of the operation.

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
    """The larger, broadcast by name. Where both are equal the gradient goes to the first, as in TensorFlow.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; one of the two is a tensor.
      output_shape: the order of the result's dimensions, and perhaps more of them, along which it is repeated.
      name: of the operation.

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
        extrema.maximum,
        slopes=lambda x1, x2, y: (_indicator(greater_equal(x1, x2), x1), _indicator(less(x1, x2), x1)),
        accepts=ORDERED,
    )


@language_function
def minimum(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The smaller, broadcast by name. Where both are equal the gradient goes to the first, as in TensorFlow.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; one of the two is a tensor.
      output_shape: the order of the result's dimensions, and perhaps more of them, along which it is repeated.
      name: of the operation.

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
        extrema.minimum,
        slopes=lambda x1, x2, y: (_indicator(less_equal(x1, x2), x1), _indicator(greater(x1, x2), x1)),
        accepts=ORDERED,
    )


@language_function
def pow(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 to the x2, negative bases included, broadcast by name.

    The gradient for the exponent is 0 where the base is not positive.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; one of the two is a tensor.
      output_shape: the order of the result's dimensions, and perhaps more of them, along which it is repeated.
      name: of the operation.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or unsigned.

    Examples:
      >>> value(mtf.pow(mtf.range(mesh, ("n", 4)), 2))
      array([0, 1, 4, 9], dtype=int32)
      >>> 2.0**x
      pow_1 [batch:4 hidden:8] float32
    """
    operands = tensors_of_one_dtype(x1, x2)
    return binary(
        *operands,
        output_shape,
        name or "pow",
        wrapping_integers.power if operands[0].dtype.is_integer else tf.pow,
        slopes=lambda x1, x2, y: (_base_slope(x1, x2), _exponent_slope(x1, y)),
        accepts=SIGNED,  # TensorFlow has no powers of unsigned integers
    )


def _base_slope(x1: Tensor, x2: Tensor) -> Tensor:
    return times_slope(x2, pow(x1, x2 - 1))  # of x ** 0, which is 1, 0 at 0 too


def _exponent_slope(x1: Tensor, y: Tensor) -> Tensor:
    has_log = not_equal(x1, 0) if x1.dtype.is_complex else greater(x1, 0)
    return multiply(y, where(has_log, log(where(has_log, x1, 1)), 0))


def _indicator(condition: Tensor, like: Tensor) -> Tensor:
    return cast(condition, like.dtype)


@language_function
def clip_by_value(x: Tensor, clip_value_min: Operand, clip_value_max: Operand) -> Tensor:
    """x limited to [clip_value_min, clip_value_max]; outside, no gradient flows to x.

    Examples:
      >>> value(mtf.clip_by_value(mtf.range(mesh, ("n", 5)), 1, 3))
      array([1, 1, 2, 3, 3], dtype=int32)
    """
    if is_scalar(clip_value_min) and is_scalar(clip_value_max) and clip_value_min > clip_value_max:  # type: ignore[operator]
        raise UsageError(f"clip_value_min is {clip_value_min}, above clip_value_max, {clip_value_max}; exchange them")
    return minimum(maximum(x, clip_value_min), clip_value_max)


def _check_divisor(x1: Operand, x2: Operand) -> None:
    if isinstance(x1, Tensor) and x1.dtype.is_integer and is_scalar(x2) and x2 == 0:
        raise UsageError(f"{x1.dtype.name} cannot be divided by 0")
