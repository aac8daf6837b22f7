"""Convolution layers. Images are [..., spatial dimensions, channels], and any of these dimensions may be split."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TypeAlias

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError
from meshtf.layers.dense import check_not_whole, dense
from meshtf.layers.initializers import DenseInitializer, VarianceScalingInitializer

OneOrEach: TypeAlias = "int | Sequence[int]"
"""One number for all spatial dimensions, or one for each, in order."""


@language_function
def conv1d(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
    filter_size: OneOrEach = 3,
    stride: OneOrEach = 1,
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """A convolution over `length`: [..., length, in] -> [..., length / stride, output_dim], without a bias.

    Args:
      x: [..., length, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      stride: the step from one window to the next: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around) or "VALID" (none).
      filter_initializer: by default normal of variance 1 / (inputs of an output).
      name: the scope of `kernel` [filter_length, in, output_dim]; by default "conv1d", made unique.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> mtf.layers.conv1d(mtf.ones(mesh, "batch:4 length:16 channels:3"), mtf.Dimension("out", 5), stride=2).shape
      Shape[batch:4 length:8 out:5]
    """
    with mtf.variable_scope(name, default_name="conv1d"):
        x, kernel = _with_kernel(x, output_dim, ("length",), filter_size, filter_initializer)
        return mtf.conv1d(x, kernel, _numbers(stride, 1, "stride"), padding)


@language_function
def conv2d(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
    filter_size: OneOrEach = (3, 3),
    strides: OneOrEach = (1, 1),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """A convolution of images: [..., height, width, in] -> [..., height / stride, width / stride, output_dim], without
    a bias.

    You name the spatial dimensions; their order says what they are. If the channels have the name of `output_dim`, they
    are renamed with a leading underscore, as in `dense`.

    Args:
      x: an image, with any number of dimensions before.
      output_dim: the channels of the result.
      filter_size: the windows' sizes: one number, or one for each spatial dimension.
      strides: the steps from one window to the next, likewise.
      padding: "SAME" (zeros around; sizes are divided by the strides and rounded up) or "VALID" (none).
      filter_initializer: given [filter_height, filter_width, in] as reduced and [filter_height, filter_width, out] as
        new dimensions, which makes fan-in and fan-out those of He et al. 2015. By default as in `dense`.
      name: the scope of `kernel` [filter_height, filter_width, in, out]; by default "conv2d", made unique.

    Raises:
      ShapeError: dimensions do not fit together, or there is not one number for each.
      DtypeError: x has a type that cannot be convolved.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.conv2d(image, mtf.Dimension("out", 5), strides=2).shape
      Shape[batch:4 height:4 width:4 out:5]
    """
    with mtf.variable_scope(name, default_name="conv2d"):
        x, kernel = _with_kernel(x, output_dim, ("height", "width"), filter_size, filter_initializer)
        return mtf.conv2d(x, kernel, _numbers(strides, 2, "strides"), padding)


@language_function
def conv3d(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
    filter_size: OneOrEach = (3, 3, 3),
    strides: OneOrEach = (1, 1, 1),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """A convolution of volumes: [..., depth, height, width, in] -> the sizes divided by the strides, with `output_dim`,
    no bias.

    Args:
      x: [..., depth, height, width, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      strides: the steps from one window to the next: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around) or "VALID" (none).
      filter_initializer: by default normal of variance 1 / (inputs of an output).
      name: the scope of `kernel`; by default "conv3d", made unique.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 depth:8 height:8 width:8 channels:3")
      >>> mtf.layers.conv3d(image, mtf.Dimension("out", 5)).shape
      Shape[batch:4 depth:8 height:8 width:8 out:5]
    """
    with mtf.variable_scope(name, default_name="conv3d"):
        x, kernel = _with_kernel(x, output_dim, ("depth", "height", "width"), filter_size, filter_initializer)
        return mtf.conv3d(x, kernel, _numbers(strides, 3, "strides"), padding)


@language_function
def conv2d_transpose(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
    filter_size: OneOrEach = (2, 2),
    strides: OneOrEach = (2, 2),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """A transposed convolution: [..., height, width, in] -> [..., height · stride, width · stride, output_dim], no
    bias.

    It is the gradient of a convolution with respect to its image, with `kernel` [filter_height, filter_width,
    output_dim, in].

    Args:
      x: [..., height, width, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      strides: the strides of that convolution: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around) or "VALID" (none).
      filter_initializer: by default normal of variance 1 / (inputs of an output).
      name: the scope of `kernel`; by default "conv2d_transpose", made unique.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:8 width:8 channels:3")
      >>> mtf.layers.conv2d_transpose(image, mtf.Dimension("out", 5)).shape
      Shape[batch:4 height:16 width:16 out:5]
    """
    with mtf.variable_scope(name, default_name="conv2d_transpose"):
        x, kernel = _with_kernel(
            x, output_dim, ("height", "width"), filter_size, filter_initializer, is_transposed=True
        )
        return mtf.conv2d_transpose(x, kernel, _numbers(strides, 2, "strides"), padding)


@language_function
def conv3d_transpose(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
    filter_size: OneOrEach = (2, 2, 2),
    strides: OneOrEach = (2, 2, 2),
    padding: str = "SAME",
    filter_initializer: DenseInitializer | None = None,
    name: str | None = None,
) -> mtf.Tensor:
    """A transposed convolution of volumes: [..., depth, height, width, in] -> the sizes times the strides, no bias.

    It is the gradient of a convolution with respect to its image.

    Args:
      x: [..., depth, height, width, in]; the last is summed.
      output_dim: the channels of the result.
      filter_size: the window's size: a number, or one for each spatial dimension.
      strides: the strides of that convolution: a number, or one for each spatial dimension.
      padding: "SAME" (zeros around) or "VALID" (none).
      filter_initializer: by default normal of variance 1 / (inputs of an output).
      name: the scope of `kernel`; by default "conv3d_transpose", made unique.

    Raises:
      ShapeError: x has too few dimensions, or the sizes of the window or the strides do not fit.
      DtypeError: x is of integers.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 depth:8 height:8 width:8 channels:3")
      >>> mtf.layers.conv3d_transpose(image, mtf.Dimension("out", 5)).shape
      Shape[batch:4 depth:16 height:16 width:16 out:5]
    """
    with mtf.variable_scope(name, default_name="conv3d_transpose"):
        x, kernel = _with_kernel(
            x, output_dim, ("depth", "height", "width"), filter_size, filter_initializer, is_transposed=True
        )
        return mtf.conv3d_transpose(x, kernel, _numbers(strides, 3, "strides"), padding)


@language_function
def separable_conv1d(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
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


def _with_kernel(
    x: mtf.Tensor,
    output_dim: mtf.Dimension,
    spatial: Sequence[str],
    filter_size: OneOrEach,
    initializer: DenseInitializer | None,
    *,
    is_transposed: bool = False,
) -> tuple[mtf.Tensor, mtf.Tensor]:
    """x and the variable `kernel`. The channels of x are renamed if the result's have their name."""
    check_not_whole(x)
    if x.shape.ndims <= len(spatial):
        raise ShapeError(f"[{x.shape}] must have {', '.join(spatial)} and channels, in this order, at its end")
    if x.shape[-1].name == output_dim.name:
        x = mtf.rename_dimension(x, output_dim.name, f"_{output_dim.name}")
    sizes = _numbers(filter_size, len(spatial), "filter_size")
    window = mtf.Shape([(f"filter_{name}", size) for name, size in zip(spatial, sizes, strict=True)])
    inner, outer = mtf.Shape([x.shape[-1]]), mtf.Shape([output_dim])
    shape = window + outer + inner if is_transposed else window + inner + outer
    fill = (initializer or VarianceScalingInitializer())(window + inner, window + outer)
    kernel = mtf.get_variable(x.mesh, "kernel", shape, initializer=fill)
    return x, mtf.cast(kernel, x.dtype)


def _numbers(value: OneOrEach, count: int, what: str) -> list[int]:
    numbers = [value] * count if isinstance(value, int) else list(value)
    if len(numbers) != count or not all(isinstance(n, int) and n > 0 for n in numbers):
        raise ShapeError(
            f"{what} must be one positive integer, or {count}, one for each spatial dimension, and is {value!r}"
        )
    return numbers
