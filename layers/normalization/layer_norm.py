"""Normalization of each position by itself."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers._operands import Dims
from meshtf.layers.normalization._statistics import centred, check_epsilon, dims_of, filled, parameter, widened


@language_function
def layer_norm(
    x: mtf.Tensor,
    dim: Dims,
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
      GraphError: the epsilon is below 0.

    Examples:
      >>> mtf.layers.layer_norm(x, "hidden").shape
      Shape[batch:4 hidden:8]
      >>> [(name, v.shape) for name, v in mesh.graph.variables.items()]
      [('layer_norm/scale', Shape[hidden:8]), ('layer_norm/bias', Shape[hidden:8])]
    """
    dims = dims_of(x, dim)
    check_epsilon(epsilon)
    with mtf.variable_scope(name, default_name="layer_norm"):
        wide = widened(x)
        near = centred(wide, x.shape - dims)
        variance = mtf.square(near).mean(dims)
        y = near * mtf.rsqrt(variance + epsilon)
        if use_scale:
            y *= parameter(y, "scale", dims, mtf.ones)
        if use_bias:
            y += parameter(y, "bias", dims, mtf.zeros)
        return y.astype(x.dtype)


@language_function
def rms_norm(
    x: mtf.Tensor,
    dim: Dims,
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
      GraphError: the epsilon is below 0.

    Examples:
      >>> mtf.layers.rms_norm(x, "hidden").shape
      Shape[batch:4 hidden:8]
      >>> [(name, v.shape) for name, v in mesh.graph.variables.items()]
      [('rms_norm/scale', Shape[hidden:8])]
    """
    dims = dims_of(x, dim)
    check_epsilon(epsilon)
    with mtf.variable_scope(name, default_name="rms_norm"):
        wide = widened(x)
        mean_square = mtf.square(wide).mean(dims)
        y = wide * mtf.rsqrt(mean_square + epsilon)
        if use_scale:
            scale = parameter(y, "scale", dims, filled(1.0 - scale_offset) if scale_offset else mtf.ones)
            y *= scale + scale_offset if scale_offset else scale
        return y.astype(x.dtype)
