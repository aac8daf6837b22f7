"""Depthwise convolutions (each channel by itself) over one to three dimensions."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.ops.convolution._arguments import Steps, check_channels, operands, windows_by_order
from meshtf.ops.convolution.functions import convolution


@language_function
def depthwise_conv1d(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of each channel of [.., length, in] by itself, with [filter_length, in, ..].

    `mtf.depthwise_conv2d` describes the parameters.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 length:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_length:3 in:3 multiplier:2")
      >>> mtf.depthwise_conv1d(image, kernel)
      depthwise_conv1d [batch:2 length:4 in:3 multiplier:2] float32
    """
    return _depthwise(conv_input, conv_filter, 1, (strides, dilations), padding, name or "depthwise_conv1d")


@language_function
def depthwise_conv2d(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of each channel of [.., height, width, in] by itself, with its part of [filter_height,
    filter_width, in].

    Further dimensions of the filter, such as a multiplier, come last in the result.

    Args:
      conv_input: [.., height, width, in], with any number of other dimensions before.
      conv_filter: [filter_height, filter_width, in, ..], the first with names that the image does not have.
      strides: the steps from one window to the next: a number, one for each dimension, or some by name.
      padding: "SAME" (zeros around, so that size / stride windows, rounded up, fit in), "VALID" (none), or "SYMMETRIC"
        (as many windows as with "SAME", with their middles on every `stride`-th element, as in PyTorch's models).
      dilations: the steps from one element of a window to the next.
      name: the operation's name.

    Raises:
      ShapeError: dimensions do not fit together, or a window does not fit in.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 height:4 width:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_height:3 f_width:3 in:3 multiplier:2")
      >>> mtf.depthwise_conv2d(image, kernel)
      depthwise_conv2d [batch:2 height:4 width:4 in:3 multiplier:2] float32
    """
    return _depthwise(conv_input, conv_filter, 2, (strides, dilations), padding, name or "depthwise_conv2d")


@language_function
def depthwise_conv3d(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of each channel of [.., depth, height, width, in] by itself.

    The filter is [filter_depth, filter_height, filter_width, in, ..].
    `mtf.depthwise_conv2d` describes the parameters.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 depth:4 height:4 width:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_depth:3 f_height:3 f_width:3 in:3 multiplier:2")
      >>> mtf.depthwise_conv3d(image, kernel)
      depthwise_conv3d [batch:2 depth:4 height:4 width:4 in:3 multiplier:2] float32
    """
    return _depthwise(conv_input, conv_filter, 3, (strides, dilations), padding, name or "depthwise_conv3d")


def _depthwise(
    image: Tensor, kernel: Tensor, count: int, steps: tuple[Steps, Steps], padding: str, name: str
) -> Tensor:
    image, kernel = operands(image, kernel)
    windows = windows_by_order(image.shape, kernel.shape, count, None)
    check_channels(image.shape, kernel.shape[count], f"the filter's dimension {count}")
    result = Shape([*image.shape, *kernel.shape.dims[count + 1 :]])
    return convolution(image, kernel, windows, result, strides=steps[0], padding=padding, dilations=steps[1], name=name)
