"""Products of gradients and slopes in which a gradient of 0 stays 0, even if the slope is infinite or NaN.

For `where(x > 0, sqrt(x), 0)` at x = 0, the branch sqrt is not taken, and its gradient is 0. The slope of sqrt at 0 is
infinite, and 0 * inf is NaN. Here the product is 0, so the branch leaks nothing backwards.
"""

from __future__ import annotations

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation, conjugate


def times_slope(dy: Tensor, slope: Tensor, output_shape: Shape | None = None) -> Tensor:
    """dy * slope where dy is not 0, else 0; broadcast by name."""
    return ElementwiseOperation(
        "multiply", _times_slope, [dy, slope], output_shape=output_shape, gradient=_times_slope_gradient
    ).outputs[0]


def over_divisor(dy: Tensor, divisor: Tensor) -> Tensor:
    """dy / divisor where dy is not 0, else 0; broadcast by name."""
    return ElementwiseOperation("divide", tf.math.xdivy, [dy, divisor], gradient=_over_divisor_gradient).outputs[0]


def _times_slope(dy: tf.Tensor, slope: tf.Tensor) -> tf.Tensor:
    return tf.math.multiply_no_nan(slope, dy)


def _times_slope_gradient(op: ElementwiseOperation, ddy: Tensor) -> list[Tensor]:
    """The gradients of both factors.

    The slope's gradient is also 0 where dy is 0, because the slope may be infinite there.
    """
    dy, slope = op.inputs
    shape = op.outputs[0].shape
    return [times_slope(ddy, conjugate(slope), shape), _times_either(conjugate(dy), ddy, shape)]


def _times_either(x: Tensor, y: Tensor, output_shape: Shape) -> Tensor:
    """x * y where neither is 0, else 0."""
    return ElementwiseOperation(
        "multiply", _product_of_either, [x, y], output_shape=output_shape, gradient=_times_either_gradient
    ).outputs[0]


def _times_either_gradient(op: ElementwiseOperation, dz: Tensor) -> list[Tensor]:
    (x, y), (z,) = op.inputs, op.outputs
    return [_times_either(dz, conjugate(other), z.shape) for other in (y, x)]


def _product_of_either(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    return tf.where(tf.equal(x, 0), tf.zeros([], x.dtype), tf.math.multiply_no_nan(x, y))


def _over_divisor_gradient(op: ElementwiseOperation, ddy: Tensor) -> list[Tensor]:
    (_, divisor), (y,) = op.inputs, op.outputs
    own = over_divisor(ddy, conjugate(divisor))
    return [own, times_slope(conjugate(y), _negative(own))]


def _negative(x: Tensor) -> Tensor:
    return ElementwiseOperation(
        "negative", tf.negative, [x], gradient=lambda op, dy: [_negative(dy)], is_linear=True
    ).outputs[0]
