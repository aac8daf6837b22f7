"""Comparisons, and logical operations on their results."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor
from meshtf.ops.elementwise.unary_and_binary import binary, unary
from meshtf.ops.inputs.accepted_dtypes import BOOL, ORDERED
from meshtf.ops.inputs.scalars import Operand


@language_function
def less(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 < x2: bool, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> numbers = mtf.range(mesh, ("n", 3))
      >>> value(mtf.less(numbers, 1))
      array([ True, False, False])
      >>> x < mtf.reduce_mean(x, reduced_dim="batch")
      less_1 [batch:4 hidden:8] bool
    """
    return binary(x1, x2, output_shape, name or "less", tf.less, output_dtype=tf.bool, accepts=ORDERED)


@language_function
def less_equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 <= x2: bool, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> numbers = mtf.range(mesh, ("n", 3))
      >>> value(mtf.less_equal(numbers, 1))
      array([ True,  True, False])
      >>> x <= mtf.reduce_mean(x, reduced_dim="batch")
      less_equal_1 [batch:4 hidden:8] bool
    """
    return binary(x1, x2, output_shape, name or "less_equal", tf.less_equal, output_dtype=tf.bool, accepts=ORDERED)


@language_function
def greater(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 > x2: bool, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> numbers = mtf.range(mesh, ("n", 3))
      >>> value(mtf.greater(numbers, 1))
      array([False, False,  True])
      >>> x > mtf.reduce_mean(x, reduced_dim="batch")
      greater_1 [batch:4 hidden:8] bool
    """
    return binary(x1, x2, output_shape, name or "greater", tf.greater, output_dtype=tf.bool, accepts=ORDERED)


@language_function
def greater_equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 >= x2: bool, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> numbers = mtf.range(mesh, ("n", 3))
      >>> value(mtf.greater_equal(numbers, 1))
      array([False,  True,  True])
      >>> x >= mtf.reduce_mean(x, reduced_dim="batch")
      greater_equal_1 [batch:4 hidden:8] bool
    """
    return binary(
        x1, x2, output_shape, name or "greater_equal", tf.greater_equal, output_dtype=tf.bool, accepts=ORDERED
    )


@language_function
def equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 == x2: bool, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ.

    Examples:
      >>> value(mtf.equal(mtf.range(mesh, ("n", 3)), 1))
      array([False,  True, False])
      >>> mtf.equal(mtf.range(mesh, ("n", 3)), mtf.range(mesh, ("m", 2)))
      equal_1 [n:3 m:2] bool
    """
    return binary(x1, x2, output_shape, name or "equal", tf.equal, output_dtype=tf.bool)


@language_function
def not_equal(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether x1 != x2: bool, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ.

    Examples:
      >>> ids = mtf.constant(mesh, [5, 3, 0, 0], "length:4", tf.int32)
      >>> value(mtf.not_equal(ids, 0))
      array([ True,  True, False, False])
    """
    return binary(x1, x2, output_shape, name or "not_equal", tf.not_equal, output_dtype=tf.bool)


@language_function
def logical_not(x: Tensor, name: str = "logical_not") -> Tensor:
    """Whether x is false.

    Examples:
      >>> mtf.logical_not(x > 0.0)
      logical_not [batch:4 hidden:8] bool
      >>> ~(x > 0.0)
      logical_not_1 [batch:4 hidden:8] bool
    """
    return unary(x, name, tf.logical_not, None, BOOL)


@language_function
def logical_and(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether both are true, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: one of them is not bool.

    Examples:
      >>> mtf.logical_and(x > 0.0, x < 1.0)
      logical_and [batch:4 hidden:8] bool
      >>> (x > 0.0) & (x < 1.0)
      logical_and_1 [batch:4 hidden:8] bool
    """
    return binary(x1, x2, output_shape, name or "logical_and", tf.logical_and, accepts=BOOL)


@language_function
def logical_or(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether either is true, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: one of them is not bool.

    Examples:
      >>> mtf.logical_or(x < 0.0, x > 1.0)
      logical_or [batch:4 hidden:8] bool
      >>> (x < 0.0) | (x > 1.0)
      logical_or_1 [batch:4 hidden:8] bool
    """
    return binary(x1, x2, output_shape, name or "logical_or", tf.logical_or, accepts=BOOL)


@language_function
def logical_xor(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """Whether exactly one is true, broadcast by name.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: one of them is not bool.

    Examples:
      >>> true, false = mtf.ones(mesh, "n:1", tf.bool), mtf.zeros(mesh, "n:1", tf.bool)
      >>> value(mtf.logical_xor(true, false)), value(mtf.logical_xor(true, true))
      (array([ True]), array([False]))
    """
    return binary(x1, x2, output_shape, name or "logical_xor", tf.math.logical_xor, accepts=BOOL)
