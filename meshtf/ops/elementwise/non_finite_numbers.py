"""Numbers that are NaN or infinite, and comparisons that allow a tolerance."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.elementwise.comparisons import equal
from meshtf.ops.elementwise.unary_and_binary import binary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import NUMBER, ORDERED, require
from meshtf.ops.inputs.scalars import Operand


@language_function
def is_nan(x: Tensor, name: str = "is_nan") -> Tensor:
    """Whether x is NaN: bool. A complex number is NaN if one of its parts is.

    Examples:
      >>> value(mtf.is_nan(mtf.constant(mesh, [1.0, np.inf, np.nan], "n:3")))
      array([False, False,  True])
    """
    require(check_tensor(x), NUMBER)
    return ElementwiseOperation(name, _is_nan, [x], output_dtype=tf.bool).outputs[0]


@language_function
def is_inf(x: Tensor, name: str = "is_inf") -> Tensor:
    """Whether x is infinite: bool. A complex number is infinite if one of its parts is.

    Examples:
      >>> value(mtf.is_inf(mtf.constant(mesh, [1.0, -np.inf, np.nan], "n:3")))
      array([False,  True, False])
    """
    require(check_tensor(x), NUMBER)
    return ElementwiseOperation(name, _is_inf, [x], output_dtype=tf.bool).outputs[0]


@language_function
def nan_to_num(x: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """x with numbers in place of NaN and of infinities. No gradient flows to x where one was replaced.

    Args:
      x: a real tensor. A tensor of integers is returned as it is.
      nan: the number in place of NaN.
      posinf: the number in place of inf; by default the largest number of the dtype.
      neginf: the number in place of -inf; by default the lowest number of the dtype.

    Raises:
      DtypeError: x is bool or complex.

    Examples:
      >>> value(mtf.nan_to_num(mtf.constant(mesh, [1.0, np.inf, np.nan], "n:3"), posinf=9.0))
      array([1., 9., 0.], dtype=float32)
    """
    require(check_tensor(x), ORDERED)
    if x.dtype.is_integer:
        return x
    highest = float(x.dtype.max) if posinf is None else posinf
    lowest = float(x.dtype.min) if neginf is None else neginf
    y = where(is_nan(x), nan, x)
    return where(equal(x, math.inf), highest, where(equal(x, -math.inf), lowest, y))


@language_function
def is_close(
    x1: Operand,
    x2: Operand,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    *,
    equal_nan: bool = False,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Whether |x1 - x2| is at most atol + rtol · |x2|: bool, broadcast by name. Equal infinities are close.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      rtol: the relative tolerance, as a fraction of |x2|.
      atol: the absolute tolerance.
      equal_nan: whether two NaNs are close.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool.

    Examples:
      >>> value(mtf.is_close(mtf.constant(mesh, [1.0, 1.1], "n:2"), 1.000001))
      array([ True, False])
    """
    kernel = _IsClose(float(rtol), float(atol), bool(equal_nan))
    return binary(x1, x2, output_shape, name or "is_close", kernel, output_dtype=tf.bool, accepts=NUMBER)


@dataclasses.dataclass(frozen=True, slots=True)
class _IsClose:
    """The kernel of `is_close`. Equal kernels compare equal."""

    rtol: float
    atol: float
    equal_nan: bool

    def __call__(self, x1: tf.Tensor, x2: tf.Tensor) -> tf.Tensor:
        is_same = tf.equal(x1, x2)
        if self.equal_nan:
            is_same |= _is_nan(x1) & _is_nan(x2)
        if x1.dtype.is_integer or x1.dtype.size < 4:  # narrow dtypes cannot hold the tolerance
            wide = tf.float64 if x1.dtype.is_integer else tf.float32
            x1, x2 = tf.cast(x1, wide), tf.cast(x2, wide)
        distance, size = tf.abs(x1 - x2), tf.abs(x2)
        limit = tf.constant(self.atol, size.dtype) + tf.constant(self.rtol, size.dtype) * size
        return is_same | ((distance <= limit) & tf.math.is_finite(size))


def _is_nan(x: tf.Tensor) -> tf.Tensor:
    if x.dtype.is_complex:
        return tf.math.is_nan(tf.math.real(x)) | tf.math.is_nan(tf.math.imag(x))
    return tf.math.is_nan(x) if x.dtype.is_floating else tf.zeros_like(x, tf.bool)


def _is_inf(x: tf.Tensor) -> tf.Tensor:
    if x.dtype.is_complex:
        return tf.math.is_inf(tf.math.real(x)) | tf.math.is_inf(tf.math.imag(x))
    return tf.math.is_inf(x) if x.dtype.is_floating else tf.zeros_like(x, tf.bool)
