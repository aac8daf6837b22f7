"""The exact Gaussian error linear unit, and its gradients."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import square
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.slopes import times_slope
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.math_functions import exp
from meshtf.ops.elementwise.remainders_powers_extrema import clip_by_value
from meshtf.planning.local_work.wide_kernel import WideKernel


def exact_gelu(x: Tensor) -> Tensor:
    """x times the probability of a normal number below x, as one operation."""
    return ElementwiseOperation(
        "gelu", EXACT_GELU, [x], gradient=lambda op, dy: (_gradient(dy, op.inputs[0], op.outputs[0].shape),)
    ).outputs[0]


def _gradient(dy: Tensor, x: Tensor, output_shape: Shape) -> Tensor:
    return ElementwiseOperation(
        "gelu_gradient", EXACT_GELU_GRADIENT, [dy, x], output_shape=output_shape, gradient=_second_gradients
    ).outputs[0]


def _second_gradients(op: ElementwiseOperation, ddy: Tensor) -> list[Tensor]:
    """The gradients of dy and of x, made of operations that have gradients themselves.

    The derivative of the slope is (2 - x^2) times the density of the normal distribution, in float32 at least.
    """
    (dy, x), shape = op.inputs, op.outputs[0].shape
    # Powers of x would become infinite, and NaN in further gradients.
    wide = square(clip_by_value(cast(x, sum_dtype(x.dtype)), -_FAR, _FAR))
    bent = cast(times_slope(exp(wide * -0.5) * _DENSITY_AT_0, 2.0 - wide), x.dtype)
    return [_gradient(ddy, x, shape), times_slope(ddy, times_slope(dy, bent, shape), shape)]


_DENSITY_AT_0 = float(1 / np.sqrt(2 * np.pi))
_FAR = 40.0
"""The |x| beyond which the normal distribution is 0 or 1 in every dtype. In float64, TensorFlow's is NaN far beyond."""


def _normal_distribution(x: tf.Tensor) -> tf.Tensor:
    """The probability of a normal number below x. 1 + erf would lose the digits of small ones."""
    return 0.5 * tf.math.erfc(tf.clip_by_value(x, -_FAR, _FAR) * -float(np.sqrt(0.5)))


def _exact_gelu(x: tf.Tensor) -> tf.Tensor:
    return x * _normal_distribution(x)


def _exact_gelu_gradient(dy: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """dy times the slope, and 0 where dy is 0. Far from 0, x times the density is 0, even if x is infinite."""
    density = _DENSITY_AT_0 * tf.exp(-0.5 * tf.square(x))
    return tf.math.multiply_no_nan(_normal_distribution(x) + tf.math.multiply_no_nan(x, density), dy)


EXACT_GELU, EXACT_GELU_GRADIENT = WideKernel(_exact_gelu), WideKernel(_exact_gelu_gradient)
