"""Activations built from linear pieces: ReLU6, and the hard versions of tanh, sigmoid and swish.

At a corner, the gradient is one of the two slopes there.
"""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import multiply
from meshtf.ops.elementwise.activations import relu
from meshtf.ops.elementwise.comparisons import greater_equal, less_equal
from meshtf.ops.elementwise.remainders_powers_extrema import clip_by_value, minimum
from meshtf.ops.elementwise.unary_and_binary import unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import REAL, require
from meshtf.planning.local_work.wide_kernel import WideKernel


@language_function
def relu6(x: Tensor) -> Tensor:
    """x limited to [0, 6] (Krizhevsky 2010).

    Examples:
      >>> value(mtf.relu6(mtf.constant(mesh, [-1.0, 2.0, 8.0], "n:3")))
      array([0., 2., 6.], dtype=float32)
    """
    return minimum(relu(x), 6)


@language_function
def hard_tanh(x: Tensor) -> Tensor:
    """x limited to [-1, 1].

    Examples:
      >>> value(mtf.hard_tanh(mtf.constant(mesh, [-3.0, 0.5, 8.0], "n:3")))
      array([-1. ,  0.5,  1. ], dtype=float32)
    """
    return clip_by_value(x, -1, 1)


@language_function
def hard_sigmoid(x: Tensor) -> Tensor:
    """x / 6 + 1 / 2, limited to [0, 1].

    Examples:
      >>> value(mtf.hard_sigmoid(mtf.constant(mesh, [-4.0, 0.0, 4.0], "n:3")))
      array([0. , 0.5, 1. ], dtype=float32)
    """
    require(check_tensor(x), REAL)
    return multiply(relu6(x + 3.0), 1 / 6)


@language_function
def hard_swish(x: Tensor) -> Tensor:
    """x * hard_sigmoid(x) (Howard et al. 2019). Its gradient is 0 at -inf, and 1 at inf.

    float16 and bfloat16 are computed in float32, and rounded once.

    Examples:
      >>> value(mtf.hard_swish(mtf.constant(mesh, [-4.0, 3.0], "n:2")))
      array([-0.,  3.], dtype=float32)
    """
    return unary(x, "hard_swish", _HARD_SWISH, _hard_swish_slope, REAL)


def _hard_swish(x: tf.Tensor) -> tf.Tensor:
    return x * (tf.nn.relu6(x + 3.0) * (1 / 6))


def _hard_swish_slope(x: Tensor, y: Tensor) -> Tensor:
    """0 up to -3, 1 from 3 on, and x / 3 + 1 / 2 between."""
    return where(less_equal(x, -3.0), 0.0, where(greater_equal(x, 3.0), 1.0, x * (1 / 3) + 0.5))


_HARD_SWISH = WideKernel(_hard_swish)
