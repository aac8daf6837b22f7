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
        """TensorFlow's kernel is right for positive numbers. For others, it is reflected at 1/2.

        The sum of the function at x and of the function at 1 - x, or their difference, is a derivative of pi cot(pi x).
        """
        place = x - tf.round(x)
        is_reflected = (x < 0) & tf.not_equal(place, 0)
        own = tf.math.polygamma(tf.constant(self.order, x.dtype), tf.where(is_reflected, 1.0 - x, x))
        angle = math.pi * tf.where(is_reflected, place, 0.25 * tf.ones_like(x))
        cotangent, total = tf.cos(angle) / tf.sin(angle), tf.zeros_like(x)
        for coefficient in reversed(self._derivative_of_cotangent):
            total = total * cotangent + coefficient
        return tf.where(is_reflected, (-1.0) ** self.order * own - total, own)

    @property
    def _derivative_of_cotangent(self) -> list[float]:
        """The derivative of pi cot(pi x) of this order, as a polynomial in c = cot(pi x): c' is -pi (1 + c^2)."""
        terms = [0.0, math.pi]
        for _ in range(self.order):
            slopes = [-math.pi * k * c for k, c in enumerate(terms)][1:]
            terms = [a + b for a, b in zip([*slopes, 0.0, 0.0], [0.0, 0.0, *slopes], strict=True)]
        return terms


_SMALL = 0.25
"""The |x| below which `erfinv` is its series. TensorFlow's kernel takes it from (x + 1) / 2, which has no digits of a
small x: in float32, the result for 1e-8 was 0.
"""


def _series_of_erfinv(count: int) -> list[float]:
    """The first coefficients of erfinv(x) / x as a series in x^2. They follow from y' = exp(y^2) sqrt(pi) / 2."""
    terms = [1.0]
    for k in range(1, count):
        terms.append(math.fsum(terms[m] * terms[k - 1 - m] / ((m + 1) * (2 * m + 1)) for m in range(k)))
    return [c / (2 * k + 1) * (math.pi / 4) ** k * math.sqrt(math.pi) / 2 for k, c in enumerate(terms)]


_SERIES = _series_of_erfinv(14)  # exact to rounding in float64, for |x| below 1/4


def _erfinv(x: tf.Tensor) -> tf.Tensor:
    square, total = x * x, tf.zeros([], x.dtype)
    for coefficient in reversed(_SERIES):
        total = total * square + coefficient
    return tf.where(tf.abs(x) < _SMALL, x * total, tf.math.erfinv(x))


_ERFINV, _LGAMMA, _DIGAMMA = WideKernel(_erfinv), WideKernel(tf.math.lgamma), WideKernel(tf.math.digamma)
