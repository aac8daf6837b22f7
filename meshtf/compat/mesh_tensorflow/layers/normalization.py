"""Layer and batch normalization."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._variables import assign, get_variable
from meshtf.dimension import Dimension, Shape
from meshtf.graph import Operation, Tensor, VariableDType


def layer_norm(x: Tensor, dim: Dimension, epsilon: float = 1e-6, name: str = "layer_prepostprocess") -> Tensor:
    """x less its mean along a dimension, over its deviation there, scaled and moved.

    Its variables are `<name>/layer_norm/layer_norm_scale` and `layer_norm_bias`, [dim].
    """
    with tf.compat.v1.variable_scope(f"{name}/layer_norm"):
        scale = _parameter(x, "layer_norm_scale", Shape([dim]), tf.compat.v1.ones_initializer())
        bias = _parameter(x, "layer_norm_bias", Shape([dim]), tf.compat.v1.zeros_initializer())
        rest = Shape([d for d in x.shape if d != dim])
        centred = x - mtf.reduce_mean(x, output_shape=rest)
        variance = mtf.reduce_mean(mtf.square(centred), output_shape=rest)
        return centred * mtf.rsqrt(variance + epsilon) * scale + bias


def batch_norm(
    x: Tensor,
    is_training: bool,
    momentum: float,
    epsilon: float = 1e-9,
    dims_idx_start: int = 0,
    dims_idx_end: int = -1,
    init_zero: bool = False,
    name: str | None = None,
) -> tuple[Tensor, list[Operation]]:
    """x normalized over its dimensions from `dims_idx_start` up to `dims_idx_end`, and what to run with each update.

    Moving averages start as 0 and 1, where the original starts the mean at random numbers.

    Returns:
      The result, and the assignments of the moving averages: none where it is not trained.
    """
    with tf.compat.v1.variable_scope(name, default_name="batch_norm"):
        summed = x.shape.dims[dims_idx_start:dims_idx_end]
        shape = Shape([d for d in x.shape if d not in summed])
        zeros, ones = tf.compat.v1.zeros_initializer(), tf.compat.v1.ones_initializer()
        bias = _parameter(x, "batch_norm_bias", shape, zeros)
        scale = _parameter(x, "batch_norm_scale", shape, zeros if init_zero else ones)
        moving_mean = _parameter(x, "bn_moving_mean", shape, zeros, trainable=False)
        moving_variance = _parameter(x, "bn_moving_variance", shape, ones, trainable=False)
        updates = []
        mean, variance = moving_mean, moving_variance
        if is_training:
            mean = mtf.reduce_mean(x, output_shape=shape)
            variance = mtf.reduce_mean(mtf.square(x - mean), output_shape=shape)
            pairs = ((moving_mean, mean), (moving_variance, variance))
            updates = [assign(m, m * momentum + now * (1.0 - momentum)) for m, now in pairs]
        return (x - mean) * mtf.rsqrt(variance + epsilon) * scale + bias, updates


def _parameter(x: Tensor, name: str, shape: Shape, initializer: Any, trainable: bool = True) -> Tensor:
    dtype = VariableDType(tf.float32, tf.float32, x.dtype)
    return get_variable(x.mesh, name, shape, dtype, initializer=initializer, trainable=trainable)
