"""Functions of probability and statistics: the inverse of `erf`, and the logarithm of the gamma function."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import square
from meshtf.ops.elementwise.math_functions import exp
from meshtf.ops.elementwise.unary_and_binary import unary
from meshtf.ops.inputs.accepted_dtypes import REAL
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def erfinv(x: Tensor, name: str = "erfinv") -> Tensor:
    """The number whose `erf` is x. It is infinite at -1 and 1, and NaN beyond.

    Examples:
      >>> value(mtf.erfinv(mtf.constant(mesh, [0.0, 0.5, 1.0], "n:3"))).round(3)
      array([0.   , 0.477,   inf], dtype=float32)
    """
    return unary(x, name, _ERFINV, lambda x, y: exp(square(y)) * (math.sqrt(math.pi) / 2), REAL)


@language_function
def lgamma(x: Tensor, name: str = "lgamma") -> Tensor:
    """The natural logarithm of |gamma(x)|. For a positive integer n, it is the logarithm of (n - 1)!.

    Examples:
      >>> value(mtf.exp(mtf.lgamma(mtf.constant(mesh, [1.0, 5.0], "n:2")))).round(3)
      array([ 1., 24.], dtype=float32)
    """
    return unary(x, name, _LGAMMA, lambda x, y: digamma(x), REAL)


@language_function
def digamma(x: Tensor, name: str = "digamma") -> Tensor:
    """The derivative of `lgamma` at x.

    Examples:
      >>> value(mtf.digamma(mtf.constant(mesh, [1.0, 2.0], "n:2"))).round(3)
      array([-0.577,  0.423], dtype=float32)
    """
    return unary(x, name, _DIGAMMA, lambda x, y: _polygamma(x, 1), REAL)


def _polygamma(x: Tensor, order: int) -> Tensor:
    """The derivative of `digamma` of an order."""
    return unary(x, "polygamma", WideKernel(_Polygamma(order)), lambda x, y: _polygamma(x, order + 1), REAL)


@dataclasses.dataclass(frozen=True, slots=True)
class _Polygamma:
    """The kernel of a derivative of `digamma`. Equal kernels compare equal."""

    order: int

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return tf.math.polygamma(tf.constant(self.order, x.dtype), x)


_ERFINV, _LGAMMA, _DIGAMMA = WideKernel(tf.math.erfinv), WideKernel(tf.math.lgamma), WideKernel(tf.math.digamma)
