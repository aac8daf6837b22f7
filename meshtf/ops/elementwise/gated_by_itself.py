"""x times the sigmoid of a polynomial of x: swish, and gelu's approximation by tanh.

For gelu, 0.5 x (1 + tanh(u)) is x sigmoid(2 u), with u = sqrt(2/pi) (x + 0.044715 x^3).

The function is one operation and its gradient another, each computed in float32 for narrower dtypes and rounded once.
The gradient computes the sigmoid from tanh. Otherwise XLA would find one sigmoid in both, store it for the backward
pass, and read it there. That costs two passes over memory; computing it again from x costs none.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import square
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.slopes import times_slope
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.math_functions import sigmoid
from meshtf.ops.elementwise.remainders_powers_extrema import clip_by_value
from meshtf.planning.local_work.wide_kernel import WideKernel


@dataclasses.dataclass(frozen=True)
class Gate:
    """The polynomial g(x) = linear x + cubic x^3.

    Attributes:
      name: the name of the operations.
      linear: its slope at 0.
      cubic: its other coefficient.
    """

    name: str
    linear: float
    cubic: float = 0.0

    def value(self, x: tf.Tensor) -> tf.Tensor:
        if not self.cubic:
            return x if self.linear == 1.0 else self.linear * x
        return x * (self.linear + self.cubic * tf.square(x))

    def slope(self, x: tf.Tensor) -> tf.Tensor | float:
        return self.linear + 3.0 * self.cubic * tf.square(x) if self.cubic else self.linear


_GELU = 2.0 * float(np.sqrt(2 / np.pi))
SWISH, GELU = Gate("swish", 1.0), Gate("gelu", _GELU, _GELU * 0.044715)

_FAR = 12.0
"""The |x| beyond which the slope of gelu is constant: the slope's derivative is below 1e-50 there."""


@dataclasses.dataclass(frozen=True, slots=True)
class GatedKernel:
    """x sigmoid(g(x))."""

    gate: Gate

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return x * tf.sigmoid(self.gate.value(x))


@dataclasses.dataclass(frozen=True, slots=True)
class GatedGradientKernel:
    """dy (s + x s (1 - s) g'(x)), with s = sigmoid(g(x)). It is 0 where dy is 0, whatever x is.

    For large x, the slope of g is infinite and s (1 - s) is 0. Their product is then 0.
    """

    gate: Gate

    def __call__(self, dy: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        s = 0.5 + 0.5 * tf.tanh(0.5 * self.gate.value(x))
        slope = s + tf.math.multiply_no_nan(x * self.gate.slope(x), s * (1.0 - s))
        return tf.math.multiply_no_nan(slope, dy)


def gated_by_itself(x: Tensor, gate: Gate) -> Tensor:
    """x sigmoid(g(x)), for a real x."""
    return ElementwiseOperation(
        gate.name,
        WideKernel(GatedKernel(gate)),
        [x],
        gradient=lambda op, dy: (_gradient(dy, op.inputs[0], gate, op.outputs[0].shape),),
    ).outputs[0]


def _gradient(dy: Tensor, x: Tensor, gate: Gate, output_shape: Shape) -> Tensor:
    return ElementwiseOperation(
        f"{gate.name}_gradient",
        WideKernel(GatedGradientKernel(gate)),
        [dy, x],
        output_shape=output_shape,
        gradient=lambda op, ddy: _second_gradients(op, ddy, gate),
    ).outputs[0]


def _second_gradients(op: ElementwiseOperation, ddy: Tensor, gate: Gate) -> list[Tensor]:
    """The gradients of dy and of x, made of operations that have gradients themselves.

    The derivative of the slope is s (1 - s) (2 g' + x (g'^2 (1 - 2 s) + g'')). It is computed in float32 at least.
    """
    (dy, x), shape = op.inputs, op.outputs[0].shape  # x may lack dimensions that are broadcast
    wide = cast(x, tf.float32) if x.dtype.size < 4 else x
    if gate.cubic:
        wide = clip_by_value(wide, -_FAR, _FAR)  # powers of x would become infinite, and NaN in further gradients
        s = sigmoid(wide * (gate.linear + gate.cubic * square(wide)))
        slope, bend = gate.linear + 3.0 * gate.cubic * square(wide), 6.0 * gate.cubic * wide
        inner = 2.0 * slope + wide * (square(slope) * (1.0 - 2.0 * s) + bend)
    else:
        s = sigmoid(gate.linear * wide)
        inner = 2.0 * gate.linear + wide * (gate.linear**2 * (1.0 - 2.0 * s))
    bent = cast(times_slope(s * (1.0 - s), inner), x.dtype)
    return [_gradient(ddy, x, gate, shape), times_slope(ddy, times_slope(dy, bent, shape), shape)]
