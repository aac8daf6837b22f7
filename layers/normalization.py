"""Normalization of activations, with statistics in float32 whatever narrower dtype the activations have.

Variances are means of (x - mean)^2, however large the mean is. The shortcut mean(x^2) - mean(x)^2 would lose all digits
for values near 10,000 with a deviation of 1: float32 has 7 digits, and 10^8 needs 8 before the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, GraphError
from meshtf.layers.initializers import Initializer

OneOrMoreDims: TypeAlias = "mtf.Dimension | Iterable[mtf.Dimension]"


@language_function
def layer_norm(
    x: mtf.Tensor,
    dim: OneOrMoreDims,
    epsilon: float = 1e-6,
    *,
    use_scale: bool = True,
    use_bias: bool = True,
    name: str | None = None,
) -> mtf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, with statistics over `dim` (Ba et al. 2016).

    Args:
      x: [..., dim], floating, its dimensions in any order.
      dim: one dimension of x, or several, over which the statistics are taken together.
      epsilon: added to the variance, which is the biased one.
      use_scale: whether there is a variable `scale` [dim], 1 at first.
      use_bias: whether there is a variable `bias` [dim], 0 at first.
      name: the scope of the two; by default "layer_norm", made unique.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x is not floating.

    Examples:
      >>> mtf.layers.layer_norm(x, mtf.Dimension("hidden", 8)).shape
      Shape[batch:4 hidden:8]
      >>> [(name, v.shape) for name, v in mesh.graph.variables.items()]
      [('layer_norm/scale', Shape[hidden:8]), ('layer_norm/bias', Shape[hidden:8])]
    """
    dims = _dims_of(x, dim)
    with mtf.variable_scope(name, default_name="layer_norm"):
        wide = _widened(x)
        centred = _centred(wide, x.shape - dims)
        variance = mtf.reduce_mean(mtf.square(centred), output_shape=x.shape - dims)
        y = centred * mtf.rsqrt(variance + epsilon)
        if use_scale:
            y *= _parameter(y, "scale", dims, mtf.ones)
        if use_bias:
            y += _parameter(y, "bias", dims, mtf.zeros)
        return mtf.cast(y, x.dtype)


@language_function
def rms_norm(
    x: mtf.Tensor,
    dim: OneOrMoreDims,
    epsilon: float = 1e-6,
    *,
    use_scale: bool = True,
    scale_offset: float = 0.0,
    name: str | None = None,
) -> mtf.Tensor:
    """x / sqrt(mean of squares + epsilon) · (scale_offset + scale), with the mean over `dim` (Zhang & Sennrich 2019).

    Args:
      x: [..., dim], floating, its dimensions in any order.
      dim: one dimension of x, or several, over which the mean is taken together.
      epsilon: added to the mean of squares.
      use_scale: whether there is a variable `scale` [dim], 1 - scale_offset at first.
      scale_offset: a number added to `scale`; 1 in Gemma, whose weight decay draws scales to 1.
      name: its scope; by default "rms_norm", made unique.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x is not floating.

    Examples:
      >>> mtf.layers.rms_norm(x, mtf.Dimension("hidden", 8)).shape
      Shape[batch:4 hidden:8]
      >>> [(name, v.shape) for name, v in mesh.graph.variables.items()]
      [('rms_norm/scale', Shape[hidden:8])]
    """
    dims = _dims_of(x, dim)
    with mtf.variable_scope(name, default_name="rms_norm"):
        wide = _widened(x)
        mean_square = mtf.reduce_mean(mtf.square(wide), output_shape=x.shape - dims)
        y = wide * mtf.rsqrt(mean_square + epsilon)
        if use_scale:
            scale = _parameter(y, "scale", dims, _filled(1.0 - scale_offset) if scale_offset else mtf.ones)
            y *= scale + scale_offset if scale_offset else scale
        return mtf.cast(y, x.dtype)


@language_function
def batch_norm(
    x: mtf.Tensor,
    is_training: bool,
    momentum: float,
    epsilon: float = 1e-9,
    channel_dims: OneOrMoreDims | None = None,
    init_zero: bool = False,
    name: str | None = None,
) -> mtf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, with statistics over the batch (Ioffe & Szegedy 2015).

    In training, the statistics are those of x, over all of the mesh and all dimensions but `channel_dims`. The program
    assigns moving averages of them. In evaluation, the statistics are the moving averages. As published, x is
    normalised by the biased variance, and the unbiased one is averaged.

    If a batch is computed in parts (`mtf.serialize_training_step`), each part has statistics of its own, and moves the
    averages. In a stack of layers (`mtf.layer_stack`) that is not unrolled, nothing can be assigned.

    Args:
      x: [..., channel_dims], floating, its dimensions in any order.
      is_training: whether the statistics are those of x.
      momentum: the share of a moving average that a step leaves in it, such as 0.9.
      epsilon: added to the variance.
      channel_dims: dimensions with statistics, scale and bias for every element; by default x's last.
      init_zero: whether `scale` starts at 0 and not at 1, so that a residual branch adds nothing at first.
      name: the scope of `scale`, `bias`, `moving_mean` and `moving_variance`, each [channel_dims] and the last two not
        trainable; by default "batch_norm", made unique.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks a channel dimension.
      DtypeError: x is not floating.
      GraphError: the momentum is not in [0, 1].

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.batch_norm(image, is_training=True, momentum=0.9).shape
      Shape[batch:4 height:8 width:8 channels:3]
      >>> [v.shape for v in mesh.graph.trainable_variables]
      [Shape[channels:3], Shape[channels:3]]
    """
    channels = _dims_of(x, x.shape[-1:] if channel_dims is None else channel_dims)
    if not 0.0 <= momentum <= 1.0:
        raise GraphError(f"momentum must be in [0, 1], and is {momentum!r}")
    with mtf.variable_scope(name, default_name="batch_norm"):
        wide = _widened(x)
        moving_mean = _moving_average(wide, "moving_mean", channels, mtf.zeros)
        moving_variance = _moving_average(wide, "moving_variance", channels, mtf.ones)
        scale = _parameter(wide, "scale", channels, mtf.zeros if init_zero else mtf.ones)
        bias = _parameter(wide, "bias", channels, mtf.zeros)
        if is_training:
            count = x.size // channels.size
            y, mean, variance = _NormalizedBatch(scale, bias, epsilon).of(wide)
            _move(moving_mean, mean, momentum)
            # n / (n - 1) makes the variance of n samples unbiased.
            _move(moving_variance, variance * (count / max(1, count - 1)), momentum)
        else:
            inverse = mtf.rsqrt(mtf.read_variable(moving_variance) + epsilon)
            y = (wide - mtf.read_variable(moving_mean)) * (inverse * scale) + bias
        return mtf.cast(y, x.dtype)


class _NormalizedBatch:
    """A batch minus its mean, divided by its standard deviation, in one call of `batch_norm` with a gradient of its
    own.

    The gradient takes two sums over the batch: of dy, and of dy · (x - mean). They are also the gradients of bias and
    scale. Over a mesh they are reduced in one go. A gradient made step by step would need a third sum after them, of
    the gradients of x - mean. Its part by way of the variance is 0, because x - mean adds up to 0.

    The mean is rounded, so it may be off by more than a small deviation. The mean of x - mean says by how much. It is
    subtracted from the sums, and not from every element: that reads the batch once more, and writes nothing.
    """

    def __init__(self, scale: mtf.Tensor, bias: mtf.Tensor, epsilon: float) -> None:
        self._scale, self._bias, self._epsilon = scale, bias, epsilon
        self._channels = scale.shape

    def of(self, x: mtf.Tensor) -> list[mtf.Tensor]:
        """x normalized, and its mean and biased variance [channels], for averages whose gradients nobody takes."""
        return mtf.custom_gradient(self._forward, self._backward, [x, self._scale, self._bias])

    def _forward(self, x: mtf.Tensor, scale: mtf.Tensor, bias: mtf.Tensor) -> list[mtf.Tensor]:
        mean = mtf.reduce_mean(x, output_shape=self._channels)
        self._centred = x - mean
        self._rest = mtf.reduce_mean(self._centred, output_shape=self._channels)
        # mean((x - mean)^2) - rest^2 is the variance around the exact mean mean + rest.
        squares = mtf.reduce_mean(mtf.square(self._centred), output_shape=self._channels)
        variance = mtf.maximum(squares - mtf.square(self._rest), 0.0)
        self._inverse = mtf.rsqrt(variance + self._epsilon)
        slope = self._inverse * scale
        return [self._centred * slope + (bias - self._rest * slope), mean + self._rest, variance]

    def _backward(
        self,
        explicit_inputs: Sequence[mtf.Tensor],
        all_inputs: Sequence[mtf.Tensor],
        forward_operations: Sequence[mtf.Operation],
        outputs: Sequence[mtf.Tensor],
        output_grads: Sequence[mtf.Tensor | None],
    ) -> list[mtf.Tensor]:
        dy, centred, inverse = output_grads[0], self._centred, self._inverse
        assert dy is not None
        dbias = mtf.reduce_sum(dy, output_shape=self._channels)
        # `centred` is still off by `rest`, which the second term takes out of the sum.
        along = mtf.reduce_sum(dy * centred, output_shape=self._channels) - dbias * self._rest
        slope, share = inverse * self._scale, self._channels.size / centred.size
        steepness = along * mtf.square(inverse) * slope * -share
        dx = dy * slope + centred * steepness + (dbias * slope * -share - self._rest * steepness)
        return [dx, along * inverse, dbias]


def _centred(x: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
    """x minus its mean over the dimensions that `shape` lacks.

    The mean is rounded, so a second mean removes the rest.
    """
    near = x - mtf.reduce_mean(x, output_shape=shape)
    # The second mean is 0 except for rounding, whatever x is. So its gradient is 0.
    return near - mtf.stop_gradient(mtf.reduce_mean(near, output_shape=shape))


def _dims_of(x: mtf.Tensor, dims: OneOrMoreDims) -> mtf.Shape:
    """The dimensions, each of which x must have. x must be floating."""
    if not x.dtype.is_floating:
        raise DtypeError(f"statistics need floating numbers, and x is {x.dtype.name}; convert it with mtf.cast")
    found = mtf.Shape([dims] if isinstance(dims, mtf.Dimension) else dims)
    for dim in found:
        x.shape.axis(dim)
    return found


def _widened(x: mtf.Tensor) -> mtf.Tensor:
    return x if x.dtype == tf.float64 else mtf.cast(x, tf.float32)


def _parameter(like: mtf.Tensor, name: str, shape: mtf.Shape, initializer: Initializer) -> mtf.Tensor:
    return mtf.cast(mtf.get_variable(like.mesh, name, shape, initializer=initializer), like.dtype)


def _filled(value: float) -> Initializer:
    return lambda mesh, shape, dtype: mtf.fill(mesh, value, shape, dtype)


def _moving_average(like: mtf.Tensor, name: str, shape: mtf.Shape, initializer: Initializer) -> mtf.Tensor:
    # A narrow dtype would round small steps towards a statistic away, so the dtype is not that of other variables.
    return mtf.get_variable(like.mesh, name, shape, dtype=like.dtype, initializer=initializer, trainable=False)


def _move(average: mtf.Tensor, value: mtf.Tensor, momentum: float) -> None:
    mtf.assign_add(average, (value - mtf.read_variable(average)) * (1.0 - momentum))
