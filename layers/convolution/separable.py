"""Convolutions of each channel by itself, followed by a dense layer over the channels."""

from __future__ import annotations

import functools

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers._operands import DimensionLike
from meshtf.layers.dense import dense
from meshtf.layers.initializers import VarianceScalingInitializer


@language_function
def separable_conv1d(
    x: mtf.Tensor,
    output_dim: DimensionLike,
    min_relative_pos: int = -1,
    max_relative_pos: int = 1,
    depthwise_filter_initializer_scale: float = 1.0,
    pointwise_filter_initializer_scale: float = 1.0,
    use_bias: bool = True,
    name: str | None = None,
) -> mtf.Tensor:
    """A weighted sum of each channel over nearby positions, then a dense layer over the channels.

    Positions outside count as zeros. With `max_relative_pos` 0, no position sees a later one.

    Args:
      x: [..., length, channels].
      output_dim: the channels of the result.
      min_relative_pos: the first position of a window, relative to the one that is computed.
      max_relative_pos: the last one.
      depthwise_filter_initializer_scale: variance of `depthwise_kernel` [filter_length, channels], times its length.
      pointwise_filter_initializer_scale: variance of `pointwise/kernel` [channels, output_dim], times its fan-in.
      use_bias: whether `pointwise/bias` is added.
      name: the scope of the three variables; by default "separable_conv1d", made unique.

    Returns:
      [..., length, output_dim].

    Raises:
      ShapeError: x has fewer than two dimensions, or the window is empty.

    Examples:
      >>> text = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> mtf.layers.separable_conv1d(text, mtf.Dimension("d_model", 8), min_relative_pos=-2, max_relative_pos=0).shape
      Shape[batch:4 length:16 d_model:8]
    """
    if x.shape.ndims < 2:
        raise ShapeError(f"[{x.shape}] must have a length and channels, in this order, at its end")
    if min_relative_pos > max_relative_pos:
        raise ShapeError(f"the window from {min_relative_pos} to {max_relative_pos} is empty")
    length, channels = x.shape[-2:]
    positions = range(min_relative_pos, max_relative_pos + 1)
    window = mtf.Dimension("filter_length", len(positions))
    depthwise = VarianceScalingInitializer(scale=depthwise_filter_initializer_scale)
    pointwise = VarianceScalingInitializer(scale=pointwise_filter_initializer_scale)
    with mtf.variable_scope(name, default_name="separable_conv1d"):
        initializer = depthwise(mtf.Shape([window]), mtf.Shape([]))
        kernel = mtf.get_variable(x.mesh, "depthwise_kernel", [window, channels], initializer=initializer)
        weights = mtf.unstack(mtf.cast(kernel, x.dtype), window)
        terms = [mtf.shift(x, -p, length, wrap=False) * w for p, w in zip(positions, weights, strict=True)]
        y = functools.reduce(mtf.add, terms)
        return dense(y, [output_dim], use_bias=use_bias, kernel_initializer=pointwise, name="pointwise")
