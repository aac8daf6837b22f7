"""Normalization of each example's channels in groups.

Means are taken over space first, which leaves a number for each channel. Groups are made of these few numbers, so that
an image is never brought to another layout, however its channels are split.
"""

from __future__ import annotations

import dataclasses

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers._operands import DimensionLike, Dims
from meshtf.layers.normalization._statistics import check_epsilon, dims_of, parameter, widened


@language_function
def group_norm(
    x: mtf.Tensor,
    groups: int,
    spatial_dims: Dims | None = None,
    epsilon: float = 1e-5,
    *,
    channel_dim: DimensionLike | None = None,
    use_scale: bool = True,
    use_bias: bool = True,
    name: str | None = None,
) -> mtf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, with statistics over space and a group of channels.

    Every other dimension, such as the batch, has statistics for each of its places (Wu & He 2018).

    Args:
      x: [..., spatial_dims, channel_dim], floating, its dimensions in any order.
      groups: how many groups the channels are cut into; it divides their number.
      spatial_dims: the dimensions over which statistics are taken; by default all between the first and the channels.
      epsilon: added to the variance, which is the biased one.
      channel_dim: the channels; by default x's last dimension.
      use_scale: whether there is a variable `scale` [channel_dim], 1 at first.
      use_bias: whether there is a variable `bias` [channel_dim], 0 at first.
      name: the scope of the two; by default "group_norm", made unique.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks a dimension, or the groups do not divide the channels.
      DtypeError: x is not floating.
      GraphError: the epsilon is below 0.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:6")
      >>> mtf.layers.group_norm(image, groups=2).shape
      Shape[batch:4 height:8 width:8 channels:6]
    """
    check_epsilon(epsilon)
    axes = _Axes.of(x, spatial_dims, channel_dim, groups)
    with mtf.variable_scope(name, default_name="group_norm"):
        return _scaled(x, axes.normalized(widened(x), epsilon), axes.channels, use_scale=use_scale, use_bias=use_bias)


@language_function
def instance_norm(
    x: mtf.Tensor,
    spatial_dims: Dims | None = None,
    epsilon: float = 1e-5,
    *,
    channel_dim: DimensionLike | None = None,
    use_scale: bool = True,
    use_bias: bool = True,
    name: str | None = None,
) -> mtf.Tensor:
    """(x - mean) / sqrt(variance + epsilon) · scale + bias, with statistics over space (Ulyanov et al. 2016).

    It is `group_norm` with as many groups as channels.

    Args:
      x: [..., spatial_dims, channel_dim], floating, its dimensions in any order.
      spatial_dims: the dimensions over which statistics are taken; by default all between the first and the channels.
      epsilon: added to the variance, which is the biased one.
      channel_dim: the channels; by default x's last dimension.
      use_scale: whether there is a variable `scale` [channel_dim], 1 at first.
      use_bias: whether there is a variable `bias` [channel_dim], 0 at first.
      name: the scope of the two; by default "instance_norm", made unique.

    Returns:
      The shape and the type of x.

    Raises:
      ShapeError: x lacks a dimension.
      DtypeError: x is not floating.
      GraphError: the epsilon is below 0.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:6")
      >>> mtf.layers.instance_norm(image).shape
      Shape[batch:4 height:8 width:8 channels:6]
    """
    check_epsilon(epsilon)
    axes = _Axes.of(x, spatial_dims, channel_dim, None)
    with mtf.variable_scope(name, default_name="instance_norm"):
        return _scaled(x, axes.normalized(widened(x), epsilon), axes.channels, use_scale=use_scale, use_bias=use_bias)


@dataclasses.dataclass(frozen=True)
class _Axes:
    """The dimensions of an image by their roles."""

    kept: mtf.Shape
    """The dimensions of x without the spatial ones: those of a mean over space."""

    channels: mtf.Dimension
    groups: int

    @staticmethod
    def of(x: mtf.Tensor, spatial: Dims | None, channel: DimensionLike | None, groups: int | None) -> _Axes:
        """The roles of x's dimensions, checked. Without a number of groups, each channel is one."""
        channels = dims_of(x, x.shape[-1:] if channel is None else channel)[0]
        others = x.shape - [channels]
        space = dims_of(x, others[1:] if spatial is None else spatial)
        if not space.dims:
            raise ShapeError(f"[{x.shape}] has no spatial dimensions to normalize over; use mtf.layers.layer_norm")
        if space.has(channels):
            raise ShapeError(f'"{channels.name}" is given as a spatial dimension and as channels; choose one')
        count = channels.size if groups is None else groups
        if count < 1 or channels.size % count:
            raise ShapeError(f"{count} groups do not divide the channels [{channels}]")
        return _Axes(x.shape - space, channels, count)

    def normalized(self, x: mtf.Tensor, epsilon: float) -> mtf.Tensor:
        near = x - self._mean(x)
        # The mean is rounded. A second one removes the rest, whose gradient is 0.
        near -= mtf.stop_gradient(self._mean(near))
        return near * mtf.rsqrt(self._mean(mtf.square(near)) + epsilon)

    def _mean(self, x: mtf.Tensor) -> mtf.Tensor:
        """The means over space and groups, for every channel."""
        means = mtf.reduce_mean(x, output_shape=self.kept)
        size = self.channels.size // self.groups
        if size == 1:
            return means
        pair = [mtf.Dimension("(groups)", self.groups), mtf.Dimension("(within)", size)]
        grouped = means.unflatten(self.channels, pair)
        means = grouped.mean(pair[1])
        return mtf.broadcast(means, grouped.shape).flatten(pair, self.channels.name)


def _scaled(x: mtf.Tensor, y: mtf.Tensor, channels: mtf.Dimension, *, use_scale: bool, use_bias: bool) -> mtf.Tensor:
    """y with the scales and biases of its channels, in the dtype of x."""
    if use_scale:
        y *= parameter(y, "scale", mtf.Shape([channels]), mtf.ones)
    if use_bias:
        y += parameter(y, "bias", mtf.Shape([channels]), mtf.zeros)
    return y.astype(x.dtype)
