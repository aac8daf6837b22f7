"""Powers and logarithms to bases other than e, and sums of numbers known by their logarithms."""

from __future__ import annotations

import math

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import multiply, reciprocal, sub
from meshtf.ops.elementwise.comparisons import equal, logical_and
from meshtf.ops.elementwise.math_functions import sigmoid
from meshtf.ops.elementwise.non_finite_numbers import is_inf
from meshtf.ops.elementwise.unary_and_binary import binary, unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import REAL
from meshtf.ops.inputs.scalars import Operand
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def exp2(x: Tensor, name: str = "exp2") -> Tensor:
    """2 to the power x.

    Examples:
      >>> value(mtf.exp2(mtf.constant(mesh, [-1.0, 10.0], "n:2")))
      array([5.000e-01, 1.024e+03], dtype=float32)
    """
    return unary(x, name, _exp2, lambda x, y: y * math.log(2), REAL)


@language_function
def log2(x: Tensor, name: str = "log2") -> Tensor:
    """The logarithm of x to the base 2.

    Examples:
      >>> value(mtf.log2(mtf.constant(mesh, [1.0, 8.0], "n:2")))
      array([0., 3.], dtype=float32)
    """
    return unary(x, name, _LOG2, lambda x, y: reciprocal(x * math.log(2)), REAL)


@language_function
def log10(x: Tensor, name: str = "log10") -> Tensor:
    """The logarithm of x to the base 10.

    Examples:
      >>> value(mtf.log10(mtf.constant(mesh, [1.0, 100.0], "n:2")))
      array([0., 2.], dtype=float32)
    """
    return unary(x, name, _LOG10, lambda x, y: reciprocal(x * math.log(10)), REAL)


@language_function
def logaddexp(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """log(exp(x1) + exp(x2)) without overflow, broadcast by name. Two numbers of -inf give -inf.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are not real floating ones.

    Examples:
      >>> value(mtf.logaddexp(mtf.constant(mesh, [1000.0, -np.inf], "n:2"), -np.inf))
      array([1000.,  -inf], dtype=float32)
    """
    return binary(x1, x2, output_shape, name or "logaddexp", _LOGADDEXP, slopes=_shares, accepts=REAL)


def _shares(x1: Tensor, x2: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The share of each number in the sum: 1/2 if they are equal, also if both are infinite.

    The difference is replaced only for infinities, because it needs its gradient where two finite numbers are equal.
    """
    is_equal_infinity = logical_and(equal(x1, x2), is_inf(x1))
    difference = where(is_equal_infinity, 0.0, sub(x1, x2))
    return sigmoid(difference), sigmoid(multiply(difference, -1.0))


def _exp2(x: tf.Tensor) -> tf.Tensor:
    return tf.pow(tf.constant(2, x.dtype), x)


def _log2(x: tf.Tensor) -> tf.Tensor:
    return tf.math.log(x) / tf.constant(math.log(2), x.dtype)


def _log10(x: tf.Tensor) -> tf.Tensor:
    return tf.math.log(x) / tf.constant(math.log(10), x.dtype)


def _logaddexp(x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
    # The difference of two equal infinities is NaN. Then either of them is the result.
    difference = tf.where(tf.equal(x1, x2), tf.zeros([], x1.dtype), x1 - x2)
    return tf.maximum(x1, x2) + tf.math.log1p(tf.exp(-tf.abs(difference)))


_LOG2, _LOG10, _LOGADDEXP = WideKernel(_log2), WideKernel(_log10), WideKernel(_logaddexp)
