"""Operations on the bits of integers."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor
from meshtf.ops.elementwise.unary_and_binary import binary, unary
from meshtf.ops.inputs.accepted_dtypes import INTEGER
from meshtf.ops.inputs.scalars import Operand


@language_function
def bitwise_not(x: Tensor, name: str = "bitwise_not") -> Tensor:
    """Each bit of x inverted. x holds integers; for bool, use `logical_not`.

    Examples:
      >>> value(mtf.bitwise_not(mtf.range(mesh, ("n", 3))))
      array([-1, -2, -3], dtype=int32)
    """
    return unary(x, name, tf.bitwise.invert, None, INTEGER)


@language_function
def bitwise_and(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The bits that both have, broadcast by name.

    Args:
      x1: a tensor of integers, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are not integer.

    Examples:
      >>> value(mtf.bitwise_and(mtf.range(mesh, ("n", 4)), 2))
      array([0, 0, 2, 2], dtype=int32)
    """
    return binary(x1, x2, output_shape, name or "bitwise_and", tf.bitwise.bitwise_and, accepts=INTEGER)


@language_function
def bitwise_or(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The bits that either has, broadcast by name.

    `mtf.bitwise_and` describes the parameters.

    Examples:
      >>> value(mtf.bitwise_or(mtf.range(mesh, ("n", 4)), 2))
      array([2, 3, 2, 3], dtype=int32)
    """
    return binary(x1, x2, output_shape, name or "bitwise_or", tf.bitwise.bitwise_or, accepts=INTEGER)


@language_function
def bitwise_xor(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The bits that exactly one has, broadcast by name.

    `mtf.bitwise_and` describes the parameters.

    Examples:
      >>> value(mtf.bitwise_xor(mtf.range(mesh, ("n", 4)), 2))
      array([2, 3, 0, 1], dtype=int32)
    """
    return binary(x1, x2, output_shape, name or "bitwise_xor", tf.bitwise.bitwise_xor, accepts=INTEGER)


@language_function
def left_shift(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """The bits of x1 shifted left by x2, broadcast by name. The result is 0 if x2 is at least the width of the dtype.

    `mtf.bitwise_and` describes the parameters. A negative x2 counts as the width.

    Examples:
      >>> value(mtf.left_shift(mtf.range(mesh, ("n", 4)), 2))
      array([ 0,  4,  8, 12], dtype=int32)
    """
    return binary(x1, x2, output_shape, name or "left_shift", _left_shift, accepts=INTEGER)


@language_function
def right_shift(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 divided by 2 to the power x2 and rounded down, broadcast by name.

    `mtf.bitwise_and` describes the parameters. A negative x2 counts as the width.

    Examples:
      >>> value(mtf.right_shift(mtf.constant(mesh, [-8, 9, 1], "n:3", tf.int32), 2))
      array([-2,  2,  0], dtype=int32)
    """
    return binary(x1, x2, output_shape, name or "right_shift", _right_shift, accepts=INTEGER)


def _left_shift(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    is_within = _is_within(x1, x2)
    shifted = tf.bitwise.left_shift(x1, tf.where(is_within, x2, tf.zeros([], x2.dtype)))
    return tf.where(is_within, shifted, tf.zeros([], x1.dtype))


def _right_shift(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    last = tf.constant(x1.dtype.size * 8 - 1, x2.dtype)
    if x1.dtype.is_unsigned:
        is_within = _is_within(x1, x2)
        shifted = tf.bitwise.right_shift(x1, tf.where(is_within, x2, tf.zeros([], x2.dtype)))
        return tf.where(is_within, shifted, tf.zeros([], x1.dtype))
    return tf.bitwise.right_shift(x1, tf.where(_is_within(x1, x2), x2, last))


def _is_within(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    """Whether a shift is at least 0 and less than the width. TensorFlow and XLA differ in their results for others."""
    return (x2 >= tf.zeros([], x2.dtype)) & (x2 < tf.constant(x1.dtype.size * 8, x2.dtype))
