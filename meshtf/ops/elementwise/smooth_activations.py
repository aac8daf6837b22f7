"""More smooth activations: SiLU, mish, CELU, softsign and the logarithm of the sigmoid."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.errors import UsageError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import negative, reciprocal, square
from meshtf.ops.elementwise.activations import swish
from meshtf.ops.elementwise.comparisons import greater
from meshtf.ops.elementwise.complex_numbers import abs
from meshtf.ops.elementwise.math_functions import expm1, sigmoid, softplus, tanh
from meshtf.ops.elementwise.remainders_powers_extrema import clip_by_value
from meshtf.ops.elementwise.unary_and_binary import unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import REAL, require
from meshtf.planning.local_work.wide_kernel import WideKernel

_FAR = 1000.0
"""The |x| beyond which the slope of mish is constant: e^-1000 is 0 in every dtype."""


@language_function
def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x) (Elfwing et al. 2017). It is the same function as `swish`, under the name that most models use.

    Examples:
      >>> value(mtf.silu(mtf.constant(mesh, [-50.0, 0.0, 50.0], "n:3"))).round(3)
      array([-0.,  0., 50.], dtype=float32)
    """
    return swish(x)


@language_function
def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)) (Misra 2019). Its gradient is 0 at -inf, and 1 at inf.

    float16 and bfloat16 are computed in float32, and rounded once.

    Examples:
      >>> value(mtf.mish(mtf.constant(mesh, [-50.0, 0.0, 50.0], "n:3"))).round(3)
      array([-0.,  0., 50.], dtype=float32)
    """
    return unary(x, "mish", _MISH, _mish_slope, REAL)


def _mish(x: tf.Tensor) -> tf.Tensor:
    return x * tf.tanh(tf.math.softplus(x))


def _mish_slope(x: Tensor, y: Tensor) -> Tensor:
    """The slope is t + x sigmoid(x) (1 - t^2), with t = tanh(softplus(x))."""
    near = clip_by_value(x, -_FAR, _FAR)  # an infinity times 0 would be NaN
    t = tanh(softplus(near))
    return t + near * sigmoid(near) * (1.0 - square(t))


_MISH = WideKernel(_mish)


@language_function
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, alpha * (exp(x / alpha) - 1) elsewhere (Barron 2017). Its slope at 0 is 1 for every alpha.

    Raises:
      UsageError: alpha is 0.

    Examples:
      >>> value(mtf.celu(mtf.constant(mesh, [-20.0, 2.0], "n:2"), alpha=0.5)).round(3)
      array([-0.5,  2. ], dtype=float32)
    """
    require(check_tensor(x), REAL)
    if not alpha:
        raise UsageError("alpha must not be 0; for alpha near 0 the function is mtf.relu")
    return where(greater(x, 0.0), x, alpha * expm1(x * (1 / alpha)))


@language_function
def soft_sign(x: Tensor) -> Tensor:
    """x / (1 + |x|).

    float16 and bfloat16 are computed in float32, and rounded once.

    Examples:
      >>> value(mtf.soft_sign(mtf.constant(mesh, [-1.0, 0.0, 3.0], "n:3")))
      array([-0.5 ,  0.  ,  0.75], dtype=float32)
    """
    return unary(x, "soft_sign", _SOFT_SIGN, lambda x, y: square(reciprocal(abs(x) + 1.0)), REAL)


def _soft_sign(x: tf.Tensor) -> tf.Tensor:
    return x / (1.0 + tf.abs(x))


_SOFT_SIGN = WideKernel(_soft_sign)


@language_function
def log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), precise even where the sigmoid is too small for its dtype.

    Examples:
      >>> value(mtf.log_sigmoid(mtf.constant(mesh, [-200.0, 0.0], "n:2"))).round(3)
      array([-200.   ,   -0.693], dtype=float32)
    """
    return negative(softplus(negative(x)))
