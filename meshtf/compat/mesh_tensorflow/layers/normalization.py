"""Layer and batch normalization."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._variables import assign, get_variable
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType


def layer_norm(x: Tensor, dim: Dimension, epsilon: float = 1e-6, name: str = "layer_prepostprocess") -> Tensor:
    """Normalizes x to mean 0 and standard deviation 1 along a dimension, then scales and shifts it (Ba et al. 2016).

    The variables are `<name>/layer_norm/layer_norm_scale` and `layer_norm_bias`, both [dim].
    """
    with tf.compat.v1.variable_scope(f"{name}/layer_norm"):
        wide = mtf.cast(x, sum_dtype(x.dtype))
        scale = _parameter(wide, "layer_norm_scale", Shape([dim]), tf.compat.v1.ones_initializer())
        bias = _parameter(wide, "layer_norm_bias", Shape([dim]), tf.compat.v1.zeros_initializer())
        centred, _, variance = _statistics(wide, Shape([d for d in x.shape if d != dim]))
        return mtf.cast(centred * mtf.rsqrt(variance + epsilon) * scale + bias, x.dtype)


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
    """Normalizes x over its dimensions from `dims_idx_start` up to `dims_idx_end` (Ioffe and Szegedy 2015).

    Moving averages start as 0 and 1. The original starts the mean at random numbers.

    Returns:
      The result, and assignments of the moving averages to run with each update. Without training there are none.
    """
    with tf.compat.v1.variable_scope(name, default_name="batch_norm"):
        summed = x.shape.dims[dims_idx_start:dims_idx_end]
        shape = Shape([d for d in x.shape if d not in summed])
        wide = mtf.cast(x, sum_dtype(x.dtype))
        zeros, ones = tf.compat.v1.zeros_initializer(), tf.compat.v1.ones_initializer()
        bias = _parameter(wide, "batch_norm_bias", shape, zeros)
        scale = _parameter(wide, "batch_norm_scale", shape, zeros if init_zero else ones)
        moving_mean = _parameter(wide, "bn_moving_mean", shape, zeros, trainable=False)
        moving_variance = _parameter(wide, "bn_moving_variance", shape, ones, trainable=False)
        updates = []
        centred, variance = wide - moving_mean, moving_variance
        if is_training:
            centred, mean, variance = _statistics(wide, shape)
            pairs = ((moving_mean, mean), (moving_variance, variance))
            updates = [assign(m, m * momentum + now * (1.0 - momentum)) for m, now in pairs]
        return mtf.cast(centred * mtf.rsqrt(variance + epsilon) * scale + bias, x.dtype), updates


def _statistics(x: Tensor, shape: Shape) -> tuple[Tensor, Tensor, Tensor]:
    """Returns x minus its mean, the mean and the variance, over the dimensions that `shape` lacks.

    Because the mean is rounded, x minus its mean has a small mean of its own. This is subtracted as well, so that equal
    numbers have variance 0.
    """
    mean = mtf.reduce_mean(x, output_shape=shape)
    near = x - mean
    rest = mtf.stop_gradient(mtf.reduce_mean(near, output_shape=shape))
    centred = near - rest
    return centred, mean + rest, mtf.reduce_mean(mtf.square(centred), output_shape=shape)


def _parameter(x: Tensor, name: str, shape: Shape, initializer: Any, trainable: bool = True) -> Tensor:
    dtype = VariableDType(tf.float32, tf.float32, x.dtype)
    return get_variable(x.mesh, name, shape, dtype, initializer=initializer, trainable=trainable)
