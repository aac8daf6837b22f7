"""Convolutions over named dimensions: the general one by name, and the usual ones by the order of dimensions.

Each of the usual ones has its own signature, and calls the function `_conv` with the number of dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor
from meshtf.ops.convolution._arguments import (
    Steps,
    check_shared,
    geometry_by_order,
    operands,
    result_shape,
    slides_of,
    window_pairs,
)
from meshtf.ops.convolution._geometry import Geometry, slide
from meshtf.ops.convolution._operations import ConvolutionOperation


@language_function
def convolution(
    conv_input: Tensor,
    conv_filter: Tensor,
    windows: Mapping[str, str],
    output_shape: ShapeLike | None = None,
    *,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """The einsum of a filter with the windows of an image. Windows slide along any dimensions, in any order.

    Args:
      conv_input: an image, with any dimensions besides those along which windows slide.
      conv_filter: the filter. Its spatial dimensions have their own names. Dimensions that both operands have are
        summed, unless `output_shape` has them: then each index is convolved by itself (depthwise).
      windows: the filter's dimension for each dimension of the image along which windows slide, as
        {"height": "filter_height", "width": "filter_width"}.
      output_shape: the result's dimensions, in order. Along the windows, the strides and the padding determine sizes.
        The default is the image's dimensions, then the filter's, without those that are summed.
      strides: the steps from one window to the next.
      padding: "SAME" (zeros around, so that size / stride windows, rounded up, fit in), "VALID" (none), or "SYMMETRIC"
        (as many windows as with "SAME", with their middles on every `stride`-th element, as in PyTorch's models).
      dilations: the steps from one element of a window to the next.
      name: the operation's name.

    Raises:
      ShapeError: a dimension is missing, sizes disagree, or a window does not fit in.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "height:4 channels:3 width:6")
      >>> kernel = mtf.ones(mesh, "f_height:3 f_width:3 channels:3 out:5")
      >>> mtf.convolution(image, kernel, {"height": "f_height", "width": "f_width"}, strides={"width": 2})
      convolution [height:4 width:3 out:5] float32
    """
    image, kernel = operands(conv_input, conv_filter)
    pairs = window_pairs(windows, image.shape, kernel.shape)
    slides = slides_of(slide, image.shape, kernel.shape, pairs, (strides, dilations), padding)
    check_shared(image.shape, kernel.shape)
    result = result_shape(image.shape, kernel.shape, slides, output_shape)
    geometry = Geometry(image.shape, kernel.shape, result, slides)
    return ConvolutionOperation(image, kernel, geometry, name or "convolution").outputs[0]


@language_function
def conv1d(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of [.., length, in] with [filter_length, in, out]: [.., length, out].

    `mtf.conv2d` describes the names, sizes and parameters.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 length:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_length:3 in:3 out:5")
      >>> mtf.conv1d(image, kernel, strides=2)
      conv1d [batch:2 length:2 out:5] float32
    """
    return _conv(conv_input, conv_filter, 1, (strides, dilations), padding, name or "conv1d")


@language_function
def conv2d(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of [.., height, width, in] with [filter_height, filter_width, in, out]: [.., height, width, out].

    You choose the names; the order determines the roles. Height and width keep their names, and have one element for
    each window.

    Args:
      conv_input: an image, with any number of other dimensions before.
      conv_filter: the filter; its first dimensions have names that the image does not have.
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
      >>> kernel = mtf.ones(mesh, "f_height:3 f_width:3 in:3 out:5")
      >>> mtf.conv2d(image, kernel, strides=2)
      conv2d [batch:2 height:2 width:2 out:5] float32
    """
    return _conv(conv_input, conv_filter, 2, (strides, dilations), padding, name or "conv2d")


@language_function
def conv3d(
    conv_input: Tensor,
    conv_filter: Tensor,
    strides: Steps = None,
    padding: str = "SAME",
    dilations: Steps = None,
    name: str | None = None,
) -> Tensor:
    """A convolution of [.., depth, height, width, in] with [filter_depth, filter_height, filter_width, in, out].

    `mtf.conv2d` describes the names, sizes and parameters.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 depth:4 height:4 width:4 in:3")
      >>> kernel = mtf.ones(mesh, "f_depth:3 f_height:3 f_width:3 in:3 out:5")
      >>> mtf.conv3d(image, kernel, strides=2)
      conv3d [batch:2 depth:2 height:2 width:2 out:5] float32
    """
    return _conv(conv_input, conv_filter, 3, (strides, dilations), padding, name or "conv3d")


def _conv(image: Tensor, kernel: Tensor, count: int, steps: tuple[Steps, Steps], padding: str, name: str) -> Tensor:
    image, kernel = operands(image, kernel)
    geometry = geometry_by_order(image.shape, kernel.shape, count, steps, padding)
    return ConvolutionOperation(image, kernel, geometry, name).outputs[0]
