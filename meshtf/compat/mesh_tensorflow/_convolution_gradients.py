"""The gradients of convolutions and pooling as functions. New programs should call `mtf.gradients` instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from meshtf.autodiff import gradients
from meshtf.call_sites import language_function
from meshtf.compat.mesh_tensorflow._language import for_graphs
from meshtf.dimension import ShapeLike
from meshtf.errors import ShapeError, UsageError, nearest
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops import (
    avg_pool,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    max_pool,
    transpose,
    zeros,
)

Steps = int | Sequence[int] | Mapping[str, int] | None

_POOLING = {"MAX_2D": (max_pool, 2), "AVG_2D": (avg_pool, 2), "MAX_3D": (max_pool, 3), "AVG_3D": (avg_pool, 3)}


def _by_input(convolution: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of a convolution with respect to its image, which does not depend on the image."""

    def backprop_input(
        input_shape: ShapeLike,
        conv_filter: Tensor,
        dy: Tensor,
        strides: Steps,
        padding: str,
        name: str | None = None,
        *,
        dilations: Steps = None,
    ) -> Tensor:
        """The gradient of a convolution with respect to its image.

        Args:
          input_shape: the image's shape, which is the result's.
          conv_filter: the convolution's filter.
          dy: the gradient of the convolution's result, its dimensions in any order.
          strides: the convolution's strides.
          padding: the convolution's padding, "SAME" or "VALID".
          name: the operation's name.
          dilations: the convolution's dilations.

        Raises:
          ShapeError: the shapes are not those of such a convolution.
          DtypeError: the dtypes differ, or are bool or complex.
        """
        image = zeros(check_tensor(dy, "dy").mesh, input_shape, dy.dtype)
        result = convolution(image, conv_filter, strides, padding, dilations)
        return _pulled_back(result, image, dy, name)

    return _named(backprop_input, convolution, "input")


def _by_filter(convolution: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of a convolution with respect to its filter, which does not depend on the filter."""

    def backprop_filter(
        conv_input: Tensor,
        filter_shape: ShapeLike,
        dy: Tensor,
        strides: Steps,
        padding: str,
        name: str | None = None,
        *,
        dilations: Steps = None,
    ) -> Tensor:
        """The gradient of a convolution with respect to its filter.

        Args:
          conv_input: the convolution's image.
          filter_shape: the filter's shape, which is the result's.
          dy: the gradient of the convolution's result, its dimensions in any order.
          strides: the convolution's strides.
          padding: the convolution's padding, "SAME" or "VALID".
          name: the operation's name.
          dilations: the convolution's dilations.

        Raises:
          ShapeError: the shapes are not those of such a convolution.
          DtypeError: the dtypes differ, or are bool or complex.
        """
        conv_filter = zeros(check_tensor(dy, "dy").mesh, filter_shape, dy.dtype)
        result = convolution(conv_input, conv_filter, strides, padding, dilations)
        return _pulled_back(result, conv_filter, dy, name)

    return _named(backprop_filter, convolution, "filter")


def _named(function: Callable[..., Tensor], convolution: Callable[..., Tensor], operand: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = f"{convolution.__name__}_backprop_{operand}"
    return for_graphs(language_function(function))


conv2d_backprop_input = _by_input(conv2d)
conv2d_backprop_filter = _by_filter(conv2d)
conv2d_transpose_backprop_input = _by_input(conv2d_transpose)
conv2d_transpose_backprop_filter = _by_filter(conv2d_transpose)
conv3d_backprop_input = _by_input(conv3d)
conv3d_backprop_filter = _by_filter(conv3d)
conv3d_transpose_backprop_input = _by_input(conv3d_transpose)
conv3d_transpose_backprop_filter = _by_filter(conv3d_transpose)


@for_graphs
@language_function
def pool_backprop(
    x: Tensor,
    y: Tensor,
    dy: Tensor,
    ksize: Mapping[str, int] | Sequence[int],
    strides: Steps,
    pool_fn_string: str,
    name: str | None = None,
) -> Tensor:
    """The gradient of `max_pool` or `avg_pool` with respect to x. Among equal maxima, the first gets the gradient.

    Args:
      x: the tensor that was pooled, with "VALID" padding.
      y: the result.
      dy: its gradient.
      ksize: the sizes of the windows, by dimension or in the order of the last dimensions before the channels.
      strides: the steps from one window to the next.
      pool_fn_string: "MAX_2D", "AVG_2D", "MAX_3D" or "AVG_3D": over two dimensions or three.
      name: the operation's name.

    Raises:
      UsageError: there is no such pooling.
      ShapeError: `ksize` has another number of dimensions, or y or dy has another shape than the result.
    """
    if pool_fn_string not in _POOLING:
        known = ", ".join(_POOLING)
        raise UsageError(f"pool_fn_string is one of {known}, not {pool_fn_string!r}{nearest(pool_fn_string, _POOLING)}")
    pool, count = _POOLING[pool_fn_string]
    if len(ksize) != count or check_tensor(x).shape.ndims < count:
        raise ShapeError(f"{pool_fn_string} slides windows along {count} dimensions; ksize is {ksize}, of [{x.shape}]")
    if not isinstance(ksize, Mapping):
        ksize = dict(zip(x.shape.dimension_names[-count - 1 : -1], ksize, strict=True))
    result = pool(x, ksize, strides)
    _check_shape("y", check_tensor(y, "y"), result)
    return _pulled_back(result, x, check_tensor(dy, "dy"), name)


def _pulled_back(result: Tensor, operand: Tensor, dy: Tensor, name: str | None) -> Tensor:
    """The gradient of an operand. No run computes `result`, because nothing depends on it."""
    _check_shape("dy", dy, result)
    (gradient,) = gradients([result], [operand], [transpose(dy, result.shape)])
    assert gradient is not None  # the result is made of the operand
    if name is not None:
        gradient.operation.name = gradient.graph.unique_name(name)
    return gradient


def _check_shape(what: str, given: Tensor, result: Tensor) -> None:
    if set(given.shape) != set(result.shape):
        raise ShapeError(f"{what} is [{given.shape}], and the forward operation of these shapes gives [{result.shape}]")


__all__ = [
    "conv2d_backprop_filter",
    "conv2d_backprop_input",
    "conv2d_transpose_backprop_filter",
    "conv2d_transpose_backprop_input",
    "conv3d_backprop_filter",
    "conv3d_backprop_input",
    "conv3d_transpose_backprop_filter",
    "conv3d_transpose_backprop_input",
    "pool_backprop",
]
