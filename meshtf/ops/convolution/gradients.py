"""The gradients of convolutions as functions, for gradients that you write yourself.

Otherwise `mtf.gradients` makes them.
"""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike, names_of, shape_of
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.convolution._arguments import (
    Steps,
    geometry_by_order,
    operands,
    transposed_geometry_by_order,
)
from meshtf.ops.convolution._operations import (
    ConvolutionImageOperation,
    ConvolutionKernelOperation,
    ConvolutionOperation,
)


@language_function
def conv2d_backprop_input(
    input_shape: ShapeLike,
    conv_filter: Tensor,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its image: [.., height, width, in].

    Args:
      input_shape: the image's shape.
      conv_filter: [filter_height, filter_width, in, out].
      dy: the gradient of the result [.., height, width, out], its dimensions in any order.
      strides: the convolution's strides.
      padding: "SAME" or "VALID".
      name: the operation's name.
      dilations: the steps from one element of a window to the next.

    Raises:
      ShapeError: the shapes are not those of such a convolution.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> kernel = mtf.ones(mesh, "f_height:3 f_width:3 in:3 out:5")
      >>> dy = mtf.ones(mesh, "batch:2 height:2 width:2 out:5")
      >>> mtf.conv2d_backprop_input("batch:2 height:4 width:4 in:3", kernel, dy, 2, "SAME")
      conv2d_backprop_input [batch:2 height:4 width:4 in:3] float32
    """
    return _image_gradient(
        input_shape, conv_filter, dy, 2, (strides, dilations), padding, name or "conv2d_backprop_input"
    )


@language_function
def conv2d_backprop_filter(
    conv_input: Tensor,
    filter_shape: ShapeLike,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv2d` with respect to its filter.

    Args:
      conv_input: the image.
      filter_shape: the filter's shape, which is the result's.
      dy: the gradient of the result of `conv2d`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 height:4 width:4 in:3")
      >>> dy = mtf.ones(mesh, "batch:2 height:2 width:2 out:5")
      >>> mtf.conv2d_backprop_filter(image, "f_height:3 f_width:3 in:3 out:5", dy, 2, "SAME")
      conv2d_backprop_filter [f_height:3 f_width:3 in:3 out:5] float32
    """
    return _filter_gradient(
        conv_input, filter_shape, dy, 2, (strides, dilations), padding, name or "conv2d_backprop_filter"
    )


@language_function
def conv2d_transpose_backprop_input(
    input_shape: ShapeLike,
    conv_filter: Tensor,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv2d_transpose` with respect to its image.

    Args:
      input_shape: the image's shape, which is the result's.
      conv_filter: the filter.
      dy: the gradient of the result of `conv2d_transpose`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> kernel = mtf.ones(mesh, "f_height:3 f_width:3 out:5 in:3")
      >>> dy = mtf.ones(mesh, "batch:2 height:8 width:8 out:5")
      >>> mtf.conv2d_transpose_backprop_input("batch:2 height:4 width:4 in:3", kernel, dy, 2, "SAME")
      conv2d_transpose_backprop_input [batch:2 height:4 width:4 in:3] float32
    """
    return _transposed_image_gradient(
        input_shape, conv_filter, dy, 2, (strides, dilations), padding, name or "conv2d_transpose_backprop_input"
    )


@language_function
def conv2d_transpose_backprop_filter(
    conv_input: Tensor,
    filter_shape: ShapeLike,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv2d_transpose` with respect to its filter.

    Args:
      conv_input: the image.
      filter_shape: the filter's shape, which is the result's.
      dy: the gradient of the result of `conv2d_transpose`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 height:4 width:4 in:3")
      >>> dy = mtf.ones(mesh, "batch:2 height:8 width:8 out:5")
      >>> mtf.conv2d_transpose_backprop_filter(image, "f_height:3 f_width:3 out:5 in:3", dy, 2, "SAME")
      conv2d_transpose_backprop_filter [f_height:3 f_width:3 out:5 in:3] float32
    """
    return _transposed_filter_gradient(
        conv_input, filter_shape, dy, 2, (strides, dilations), padding, name or "conv2d_transpose_backprop_filter"
    )


@language_function
def conv3d_backprop_input(
    input_shape: ShapeLike,
    conv_filter: Tensor,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv3d` with respect to its image.

    Args:
      input_shape: the image's shape, which is the result's.
      conv_filter: the filter.
      dy: the gradient of the result of `conv3d`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> kernel = mtf.ones(mesh, "f_depth:3 f_height:3 f_width:3 in:3 out:5")
      >>> dy = mtf.ones(mesh, "batch:2 depth:2 height:2 width:2 out:5")
      >>> mtf.conv3d_backprop_input("batch:2 depth:4 height:4 width:4 in:3", kernel, dy, 2, "SAME")
      conv3d_backprop_input [batch:2 depth:4 height:4 width:4 in:3] float32
    """
    return _image_gradient(
        input_shape, conv_filter, dy, 3, (strides, dilations), padding, name or "conv3d_backprop_input"
    )


@language_function
def conv3d_backprop_filter(
    conv_input: Tensor,
    filter_shape: ShapeLike,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv3d` with respect to its filter.

    Args:
      conv_input: the image.
      filter_shape: the filter's shape, which is the result's.
      dy: the gradient of the result of `conv3d`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 depth:4 height:4 width:4 in:3")
      >>> dy = mtf.ones(mesh, "batch:2 depth:2 height:2 width:2 out:5")
      >>> mtf.conv3d_backprop_filter(image, "f_depth:3 f_height:3 f_width:3 in:3 out:5", dy, 2, "SAME")
      conv3d_backprop_filter [f_depth:3 f_height:3 f_width:3 in:3 out:5] float32
    """
    return _filter_gradient(
        conv_input, filter_shape, dy, 3, (strides, dilations), padding, name or "conv3d_backprop_filter"
    )


@language_function
def conv3d_transpose_backprop_input(
    input_shape: ShapeLike,
    conv_filter: Tensor,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv3d_transpose` with respect to its image.

    Args:
      input_shape: the image's shape, which is the result's.
      conv_filter: the filter.
      dy: the gradient of the result of `conv3d_transpose`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> kernel = mtf.ones(mesh, "f_depth:3 f_height:3 f_width:3 out:5 in:3")
      >>> dy = mtf.ones(mesh, "batch:2 depth:8 height:8 width:8 out:5")
      >>> mtf.conv3d_transpose_backprop_input("batch:2 depth:4 height:4 width:4 in:3", kernel, dy, 2, "SAME")
      conv3d_transpose_backprop_input [batch:2 depth:4 height:4 width:4 in:3] float32
    """
    return _transposed_image_gradient(
        input_shape, conv_filter, dy, 3, (strides, dilations), padding, name or "conv3d_transpose_backprop_input"
    )


@language_function
def conv3d_transpose_backprop_filter(
    conv_input: Tensor,
    filter_shape: ShapeLike,
    dy: Tensor,
    strides: Steps,
    padding: str,
    name: str | None = None,
    *,
    dilations: Steps = None,
) -> Tensor:
    """The gradient of `conv3d_transpose` with respect to its filter.

    Args:
      conv_input: the image.
      filter_shape: the filter's shape, which is the result's.
      dy: the gradient of the result of `conv3d_transpose`.
      strides: the strides that it was given.
      padding: the padding that it was given, "SAME" or "VALID".
      name: the operation's name.
      dilations: the dilations that it was given.

    Raises:
      ShapeError: dimensions do not fit together; dy has another shape than the result.
      DtypeError: the dtypes differ, or are bool or complex.

    Examples:
      >>> image = mtf.ones(mesh, "batch:2 depth:4 height:4 width:4 in:3")
      >>> dy = mtf.ones(mesh, "batch:2 depth:8 height:8 width:8 out:5")
      >>> mtf.conv3d_transpose_backprop_filter(image, "f_depth:3 f_height:3 f_width:3 out:5 in:3", dy, 2, "SAME")
      conv3d_transpose_backprop_filter [f_depth:3 f_height:3 f_width:3 out:5 in:3] float32
    """
    return _transposed_filter_gradient(
        conv_input, filter_shape, dy, 3, (strides, dilations), padding, name or "conv3d_transpose_backprop_filter"
    )


def _image_gradient(
    input_shape: ShapeLike,
    conv_filter: Tensor,
    dy: Tensor,
    count: int,
    steps: tuple[Steps, Steps],
    padding: str,
    name: str,
) -> Tensor:
    dy, kernel = operands(dy, conv_filter)
    geometry = geometry_by_order(_image_shape(input_shape, kernel, dy, count), kernel.shape, count, steps, padding)
    return ConvolutionImageOperation(_in_order(dy, geometry.result), kernel, geometry, name).outputs[0]


def _filter_gradient(
    conv_input: Tensor,
    filter_shape: ShapeLike,
    dy: Tensor,
    count: int,
    steps: tuple[Steps, Steps],
    padding: str,
    name: str,
) -> Tensor:
    image, dy = operands(conv_input, dy)
    geometry = geometry_by_order(image.shape, shape_of(filter_shape, [image.shape, dy.shape]), count, steps, padding)
    return ConvolutionKernelOperation(image, _in_order(dy, geometry.result), geometry, name).outputs[0]


def _transposed_image_gradient(
    input_shape: ShapeLike,
    conv_filter: Tensor,
    dy: Tensor,
    count: int,
    steps: tuple[Steps, Steps],
    padding: str,
    name: str,
) -> Tensor:
    dy, kernel = operands(dy, conv_filter)
    geometry = transposed_geometry_by_order(
        _image_shape(input_shape, kernel, dy, count), kernel.shape, count, steps, padding
    )
    return ConvolutionOperation(_in_order(dy, geometry.image), kernel, geometry, name).outputs[0]


def _transposed_filter_gradient(
    conv_input: Tensor,
    filter_shape: ShapeLike,
    dy: Tensor,
    count: int,
    steps: tuple[Steps, Steps],
    padding: str,
    name: str,
) -> Tensor:
    result, dy = operands(conv_input, dy)
    geometry = transposed_geometry_by_order(
        result.shape, shape_of(filter_shape, [result.shape, dy.shape]), count, steps, padding
    )
    return ConvolutionKernelOperation(_in_order(dy, geometry.image), result, geometry, name).outputs[0]


def _image_shape(input_shape: ShapeLike, kernel: Tensor, dy: Tensor, count: int) -> Shape:
    """The image's shape. Its size along a window is not dy's, so it is given."""
    windows = names_of(input_shape)[-count - 1 : -1]
    return shape_of(input_shape, [kernel.shape, Shape([d for d in dy.shape if d.name not in windows])])


def _in_order(dy: Tensor, shape: Shape) -> Tensor:
    if set(dy.shape) != set(shape):
        raise ShapeError(f"dy is [{dy.shape}], and the convolution of these shapes gives [{shape}]")
    return transpose(dy, shape)
