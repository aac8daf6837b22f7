"""The nonlinear functions of neural networks."""

from __future__ import annotations

import functools

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import multiply, square
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.elementwise.comparisons import greater, greater_equal
from meshtf.ops.elementwise.exact_gelu import exact_gelu
from meshtf.ops.elementwise.gated_by_itself import GELU, SWISH, gated_by_itself
from meshtf.ops.elementwise.math_functions import exp, sigmoid
from meshtf.ops.elementwise.unary_and_binary import unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import FLOATING, ORDERED, REAL, require
from meshtf.ops.inputs.constants import constant
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def relu(x: Tensor, name: str = "relu") -> Tensor:
    """max(x, 0).

    Examples:
      >>> value(mtf.relu(mtf.constant(mesh, [-1.0, 2.0], "n:2")))
      array([0., 2.], dtype=float32)
    """
    require(check_tensor(x), ORDERED)
    return ElementwiseOperation(
        name, tf.nn.relu, [x], gradient=lambda op, dy: (_relu_gradient(dy, op.outputs[0]),)
    ).outputs[0]


def _relu_gradient(dy: Tensor, y: Tensor) -> Tensor:
    """dy where y is positive, else 0, in one kernel."""
    return ElementwiseOperation(
        "relu_gradient",
        _relu_gradient_kernel,
        [dy, y],
        output_shape=y.shape,
        gradient=lambda op, ddy: (_relu_gradient(ddy, op.inputs[1]), None),
    ).outputs[0]


def _relu_gradient_kernel(gradient: tf.Tensor, feature: tf.Tensor) -> tf.Tensor:
    if gradient.shape != feature.shape:  # a mean's gradient has fewer elements, and the kernel does not broadcast
        gradient = tf.broadcast_to(gradient, feature.shape)
    return tf.raw_ops.ReluGrad(gradients=gradient, features=feature)


@language_function
def squared_relu(x: Tensor) -> Tensor:
    """max(x, 0) times itself (So et al. 2021).

    Examples:
      >>> value(mtf.squared_relu(mtf.constant(mesh, [-1.0, 3.0], "n:2")))
      array([0., 9.], dtype=float32)
    """
    return square(relu(x))


_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805


@language_function
def elu(x: Tensor, name: str = "elu") -> Tensor:
    """x where positive, exp(x) - 1 elsewhere. It is precise for small x.

    Examples:
      >>> value(mtf.elu(mtf.constant(mesh, [-20.0, 2.0], "n:2"))).round(3)
      array([-1.,  2.], dtype=float32)
    """
    return unary(x, name, ELU, lambda x, y: where(greater_equal(x, 0.0), 1.0, exp(x)), REAL)


def _elu(x: tf.Tensor) -> tf.Tensor:
    """TensorFlow's kernel subtracts 1 from exp(x), which leaves few digits of a small x, and none in a narrow dtype."""
    return tf.where(x > 0.0, x, tf.math.expm1(x))


ELU = WideKernel(_elu)


@language_function
def selu(x: Tensor, name: str = "selu") -> Tensor:
    """The scaled exponential linear unit of x (Klambauer et al. 2017).

    Examples:
      >>> value(mtf.selu(mtf.constant(mesh, [-20.0, 1.0], "n:2"))).round(3)
      array([-1.758,  1.051], dtype=float32)
    """
    return unary(
        x,
        name,
        SELU,
        lambda x, y: where(greater_equal(x, 0.0), _SELU_SCALE, exp(x) * (_SELU_SCALE * _SELU_ALPHA)),
        REAL,
    )


def _selu(x: tf.Tensor) -> tf.Tensor:
    return tf.where(x > 0.0, _SELU_SCALE * x, (_SELU_SCALE * _SELU_ALPHA) * tf.math.expm1(x))


SELU = WideKernel(_selu)


@language_function
def leaky_relu(x: Tensor, alpha: float = 0.2, name: str = "leaky_relu") -> Tensor:
    """x where positive, alpha * x elsewhere.

    Examples:
      >>> value(mtf.leaky_relu(mtf.constant(mesh, [-2.0, 2.0], "n:2"), alpha=0.5))
      array([-1.,  2.], dtype=float32)
    """
    require(check_tensor(x), REAL)
    slope = float(np.float32(alpha))  # TensorFlow's kernel takes a float32, whatever the dtype of x
    return ElementwiseOperation(
        name,
        functools.partial(tf.nn.leaky_relu, alpha=alpha),
        [x],
        gradient=lambda op, dy: (_leaky_gradient(op.inputs[0], dy, slope),),
    ).outputs[0]


def _leaky_gradient(x: Tensor, dy: Tensor, slope: float) -> Tensor:
    return multiply(dy, where(greater(x, 0.0), 1.0, constant(x.mesh, slope, x.shape, x.dtype)))


@language_function
def swish(x: Tensor) -> Tensor:
    """x * sigmoid(x).

    float16 and bfloat16 are computed in float32, and rounded once.

    Examples:
      >>> value(mtf.swish(mtf.constant(mesh, [-50.0, 0.0, 50.0], "n:3"))).round(3)
      array([-0.,  0., 50.], dtype=float32)
    """
    require(check_tensor(x), FLOATING)
    return x * sigmoid(x) if x.dtype.is_complex else gated_by_itself(x, SWISH)


@language_function
def gelu(x: Tensor, approximate: bool = True) -> Tensor:
    """The Gaussian error linear unit of x (Hendrycks & Gimpel 2016), by default in its approximation by tanh.

    float16 and bfloat16 are computed in float32, and rounded once.

    Examples:
      >>> value(mtf.gelu(mtf.constant(mesh, [-10.0, 0.0, 10.0], "n:3"), approximate=False)).round(3)
      array([-0.,  0., 10.], dtype=float32)
    """
    require(check_tensor(x), REAL)
    return gated_by_itself(x, GELU) if approximate else exact_gelu(x)
