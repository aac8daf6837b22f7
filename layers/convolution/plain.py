"""Convolutions. Images are [..., spatial dimensions, channels], and any of these dimensions may be split."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers._operands import DimensionLike
from meshtf.layers.activations import Activation, activation_function
from meshtf.layers.convolution._kernel import OneOrEach, numbers, with_bias, with_kernel
from meshtf.layers.initializers import DenseInitializer


@language_function
def conv1d(  # noqa: PLR0913  # windows, and what `dense` has
    x: mtf.Tensor,
    output_dim: DimensionLike,
    filter_size: OneOrEach = 3,
    stride: OneOrEach = 1,
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
    *,
    use_bias: bool = False,
    activation: Activation = None,
) -> mtf.Tensor:
    """A convolution over `length`: [..., length, in] -> [..., length / stride, output_dim].

    Args:
      x: [..., length, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      stride: the step from one window to the next: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around), "VALID" (none), or "SYMMETRIC" (as many zeros before as after).
      filter_initializer: by default as in `dense`, with the inputs of an output as the reduced sizes.
      name: the scope of `bias` and `kernel` [filter_length, in, output_dim]; by default "conv1d", made unique.
      use_bias: whether a bias [output_dim], zero at first, is added.
      activation: applied to the result: a function, or its name.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> mtf.layers.conv1d(mtf.ones(mesh, "batch:4 length:16 channels:3"), "out:5", stride=2).shape
      Shape[batch:4 length:8 out:5]
    """
    function = activation_function(activation)
    with mtf.variable_scope(name, default_name="conv1d"):
        x, kernel = with_kernel(x, output_dim, ("length",), filter_size, filter_initializer)
        y = mtf.conv1d(x, kernel, numbers(stride, 1, "stride"), padding)
        return function(with_bias(y) if use_bias else y)


@language_function
def conv2d(  # noqa: PLR0913  # windows, and what `dense` has
    x: mtf.Tensor,
    output_dim: DimensionLike,
    filter_size: OneOrEach = (3, 3),
    strides: OneOrEach = (1, 1),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
    *,
    use_bias: bool = False,
    activation: Activation = None,
) -> mtf.Tensor:
    """A convolution of images: [..., height, width, in] -> [..., height / stride, width / stride, output_dim].

    The spatial dimensions may have any names; their order decides. If the channels have the name of `output_dim`, they
    are renamed with a leading underscore, as in `dense`.

    Args:
      x: an image, with any number of leading dimensions.
      output_dim: the channels of the result.
      filter_size: the windows' sizes: one number, or one for each spatial dimension.
      strides: the steps from one window to the next, likewise.
      padding: "SAME" (zeros around; sizes are divided by the strides and rounded up), "VALID" (none), or "SYMMETRIC"
        (the sizes of "SAME", with as many zeros before as after; windows must be odd).
      filter_initializer: receives [filter_height, filter_width, in] as reduced and [filter_height, filter_width, out]
        as new dimensions, so that fan-in and fan-out are those of He et al. 2015. By default as in `dense`.
      name: the scope of `bias` and `kernel` [filter_height, filter_width, in, out]; by default "conv2d", made unique.
      use_bias: whether a bias [output_dim], zero at first, is added.
      activation: applied to the result: a function, or its name.

    Raises:
      ShapeError: dimensions do not fit together, or there is not one number for each.
      DtypeError: x has a type that cannot be convolved.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.conv2d(image, "out:5", strides=2).shape
      Shape[batch:4 height:4 width:4 out:5]
    """
    function = activation_function(activation)
    with mtf.variable_scope(name, default_name="conv2d"):
        x, kernel = with_kernel(x, output_dim, ("height", "width"), filter_size, filter_initializer)
        y = mtf.conv2d(x, kernel, numbers(strides, 2, "strides"), padding)
        return function(with_bias(y) if use_bias else y)


@language_function
def conv3d(  # noqa: PLR0913  # windows, and what `dense` has
    x: mtf.Tensor,
    output_dim: DimensionLike,
    filter_size: OneOrEach = (3, 3, 3),
    strides: OneOrEach = (1, 1, 1),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
    *,
    use_bias: bool = False,
    activation: Activation = None,
) -> mtf.Tensor:
    """A convolution of volumes: [..., depth, height, width, in] -> the sizes divided by the strides, with `output_dim`.

    Args:
      x: [..., depth, height, width, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      strides: the steps from one window to the next: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around), "VALID" (none), or "SYMMETRIC" (as many zeros before as after).
      filter_initializer: by default as in `dense`, with the inputs of an output as the reduced sizes.
      name: the scope of `kernel` and `bias`; by default "conv3d", made unique.
      use_bias: whether a bias [output_dim], zero at first, is added.
      activation: applied to the result: a function, or its name.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 depth:8 height:8 width:8 channels:3")
      >>> mtf.layers.conv3d(image, "out:5").shape
      Shape[batch:4 depth:8 height:8 width:8 out:5]
    """
    function = activation_function(activation)
    with mtf.variable_scope(name, default_name="conv3d"):
        x, kernel = with_kernel(x, output_dim, ("depth", "height", "width"), filter_size, filter_initializer)
        y = mtf.conv3d(x, kernel, numbers(strides, 3, "strides"), padding)
        return function(with_bias(y) if use_bias else y)
