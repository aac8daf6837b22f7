"""Transposed convolutions, which make images larger."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers._operands import DimensionLike
from meshtf.layers.activations import Activation, activation_function
from meshtf.layers.convolution._kernel import OneOrEach, numbers, with_bias, with_kernel
from meshtf.layers.initializers import DenseInitializer


@language_function
def conv2d_transpose(  # noqa: PLR0913  # windows, and what `dense` has
    x: mtf.Tensor,
    output_dim: DimensionLike,
    filter_size: OneOrEach = (2, 2),
    strides: OneOrEach = (2, 2),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
    *,
    use_bias: bool = False,
    activation: Activation = None,
) -> mtf.Tensor:
    """A transposed convolution: [..., height, width, in] -> [..., height · stride, width · stride, output_dim].

    It is the gradient of a convolution with respect to its image, with `kernel` [filter_height, filter_width,
    output_dim, in].

    Args:
      x: [..., height, width, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      strides: the strides of that convolution: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around), "VALID" (none), or "SYMMETRIC" (as many zeros before as after).
      filter_initializer: by default as in `dense`, with the window's sizes and `in` as the reduced sizes. An output
        has fewer inputs, by the product of the strides.
      name: the scope of `kernel` and `bias`; by default "conv2d_transpose", made unique.
      use_bias: whether a bias [output_dim], zero at first, is added.
      activation: applied to the result: a function, or its name.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.conv2d_transpose(image, "out:5").shape
      Shape[batch:4 height:16 width:16 out:5]
    """
    function = activation_function(activation)
    with mtf.variable_scope(name, default_name="conv2d_transpose"):
        x, kernel = with_kernel(x, output_dim, ("height", "width"), filter_size, filter_initializer, is_transposed=True)
        y = mtf.conv2d_transpose(x, kernel, numbers(strides, 2, "strides"), padding)
        return function(with_bias(y) if use_bias else y)


@language_function
def conv3d_transpose(  # noqa: PLR0913  # windows, and what `dense` has
    x: mtf.Tensor,
    output_dim: DimensionLike,
    filter_size: OneOrEach = (2, 2, 2),
    strides: OneOrEach = (2, 2, 2),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
    *,
    use_bias: bool = False,
    activation: Activation = None,
) -> mtf.Tensor:
    """A transposed convolution of volumes: [..., depth, height, width, in] -> the sizes times the strides.

    It is the gradient of a convolution with respect to its image.

    Args:
      x: [..., depth, height, width, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      strides: the strides of that convolution: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around), "VALID" (none), or "SYMMETRIC" (as many zeros before as after).
      filter_initializer: by default as in `dense`, with the window's sizes and `in` as the reduced sizes. An output
        has fewer inputs, by the product of the strides.
      name: the scope of `kernel` and `bias`; by default "conv3d_transpose", made unique.
      use_bias: whether a bias [output_dim], zero at first, is added.
      activation: applied to the result: a function, or its name.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 depth:8 height:8 width:8 channels:3")
      >>> mtf.layers.conv3d_transpose(image, "out:5").shape
      Shape[batch:4 depth:16 height:16 width:16 out:5]
    """
    function = activation_function(activation)
    with mtf.variable_scope(name, default_name="conv3d_transpose"):
        x, kernel = with_kernel(
            x, output_dim, ("depth", "height", "width"), filter_size, filter_initializer, is_transposed=True
        )
        y = mtf.conv3d_transpose(x, kernel, numbers(strides, 3, "strides"), padding)
        return function(with_bias(y) if use_bias else y)
