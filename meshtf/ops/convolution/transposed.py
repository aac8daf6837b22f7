"""Transposed convolutions, the gradients of convolutions with respect to their images, over one to three dimensions."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.graph.tensor import Tensor
from meshtf.ops.convolution._arguments import Steps, operands, transposed_geometry_by_order
from meshtf.ops.convolution._operations import ConvolutionImageOperation


@language_function
def conv1d_transpose(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A transposed convolution of [.., length, in] with [filter_length, out, in]: [.., length, out].

    It is the gradient of `conv1d` with respect to its image. `mtf.conv2d_transpose` describes the parameters.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 length:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_length:3 out:5 in:3")
      >>> mtf.conv1d_transpose(image, kernel, strides=2)
      conv1d_transpose [batch:2 length:8 out:5] float32
    """
    return _conv_transpose(conv_input, conv_filter, 1, (strides, dilations), padding, name or "conv1d_transpose")


@language_function
def conv2d_transpose(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A transposed convolution of [.., height, width, in] with [filter_height, filter_width, out, in]: [.., height,
    width, out].

    It is the gradient of `conv2d` with respect to its image. Sizes are multiplied by the strides. With "VALID" padding,
    the excess of the filter's size over the stride is added.

    Args:
      conv_input: an image, with any number of other dimensions before.
      conv_filter: the filter; its first dimensions have names that the image does not have.
      strides: the strides of the convolution whose gradient this is: a number, one for each dimension, or some by name.
      padding: "SAME", "VALID" or "SYMMETRIC", of that convolution.
      dilations: the dilations of that convolution.
      name: the operation's name.

    Raises:
      ShapeError: dimensions do not fit together.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 height:4 width:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_height:3 f_width:3 out:5 in:3")
      >>> mtf.conv2d_transpose(image, kernel, strides=2)
      conv2d_transpose [batch:2 height:8 width:8 out:5] float32
    """
    return _conv_transpose(conv_input, conv_filter, 2, (strides, dilations), padding, name or "conv2d_transpose")


@language_function
def conv3d_transpose(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A transposed convolution of [.., depth, height, width, in] with a filter of three dimensions, out and in.

    The filter is [filter_depth, filter_height, filter_width, out, in]. It is the gradient of `conv3d` with respect to
    its image. `mtf.conv2d_transpose` describes the parameters.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 depth:4 height:4 width:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_depth:3 f_height:3 f_width:3 out:5 in:3")
      >>> mtf.conv3d_transpose(image, kernel, strides=2)
      conv3d_transpose [batch:2 depth:8 height:8 width:8 out:5] float32
    """
    return _conv_transpose(conv_input, conv_filter, 3, (strides, dilations), padding, name or "conv3d_transpose")


def _conv_transpose(
    conv_input: Tensor, conv_filter: Tensor, count: int, steps: tuple[Steps, Steps], padding: str, name: str
) -> Tensor:
    result, kernel = operands(conv_input, conv_filter)
    geometry = transposed_geometry_by_order(result.shape, kernel.shape, count, steps, padding)
    return ConvolutionImageOperation(result, kernel, geometry, name).outputs[0]
