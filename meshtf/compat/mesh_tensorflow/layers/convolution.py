"""Convolutions and pooling over images [..., height, width, channels], and over volumes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf import dimension as language
from meshtf import ops
from meshtf.compat.mesh_tensorflow import _functions as mtf
from meshtf.compat.mesh_tensorflow._dimension import Dimension, Shape
from meshtf.compat.mesh_tensorflow._language import for_graphs
from meshtf.compat.mesh_tensorflow._variables import get_variable
from meshtf.compat.mesh_tensorflow.layers.dense import VarianceScalingInitializer, dense
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType

_FILTER_DIMS = {1: ("fw",), 2: ("fh", "fw"), 3: ("fd", "fh", "fw")}


def conv1d(x: Tensor, output_dim: language.Dimension, filter_size: int = 3, stride: int = 1, **kw_args: Any) -> Tensor:
    """Convolves along the dimension before the last, [..., length, output_dim].

    It is a `conv2d` that is one pixel high.
    """
    height = Dimension("fake_height", 1)
    image = mtf.reshape(x, Shape([*x.shape.dims[:-2], height, *x.shape.dims[-2:]]))
    y = conv2d(image, output_dim, filter_size=(1, filter_size), strides=(1, stride), **kw_args)
    return mtf.reshape(y, Shape([d for d in y.shape if d.name != height.name]))


def separable_conv1d(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    output_dim: language.Dimension,
    min_relative_pos: int = -1,
    max_relative_pos: int = 1,
    depthwise_filter_initializer_scale: float = 1.0,
    pointwise_filter_initializer_scale: float = 1.0,
    name: str | None = None,
    use_bias: bool = True,
    kernel_depth_weights: Sequence[Tensor] | None = None,
) -> Tensor:
    """Convolves each channel by itself along the dimension before the last, then applies a dense layer.

    Args:
      x: [..., length, channels].
      output_dim: the channels of the result.
      min_relative_pos: the first position of a window. The position of the result is 0.
      max_relative_pos: the last position of a window.
      depthwise_filter_initializer_scale: the scale of the initial variance of the windows' weights.
      pointwise_filter_initializer_scale: the scale of the initial variance of the dense layer's weights.
      name: the scope. It has variables `depthwise_conv_hack/depthwise_dense_<i>/kernel` [channels], the first with
        a bias, and `pointwise_dense/kernel` [channels, output_dim].
      use_bias: whether there are biases.
      kernel_depth_weights: tensors in place of the windows' variables, one for each position.

    Returns:
      [..., length, output_dim].
    """
    *_, length, channels = x.shape.dims
    positions = range(min_relative_pos, max_relative_pos + 1)
    scale = depthwise_filter_initializer_scale / len(positions)
    with tf.compat.v1.variable_scope(name, default_name="separable_conv1d"):
        with tf.compat.v1.variable_scope(None, default_name="depthwise_conv_hack"):
            parts = [
                dense(
                    mtf.shift(x, -position, length, wrap=False),
                    [],
                    [],
                    [channels],
                    use_bias=use_bias and i == 0,
                    kernel_initializer=VarianceScalingInitializer(scale),
                    kernel_weights=kernel_depth_weights[i] if kernel_depth_weights else None,
                    name=f"depthwise_dense_{i}",
                )
                for i, position in enumerate(positions)
            ]
        start = VarianceScalingInitializer(pointwise_filter_initializer_scale)
        return dense(
            cast("Tensor", mtf.add_n(parts)),  # there is at least one position
            [output_dim],
            [channels],
            use_bias=use_bias,
            kernel_initializer=start,
            name="pointwise_dense",
        )


def conv2d(
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int] = (3, 3),
    strides: Sequence[int] = (1, 1),
    padding: str = "SAME",
    filter_initializer: Any = None,
    variable_dtype: VariableDType | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolves images: [..., height, width, channels] -> [..., height, width, output_dim].

    The variable is `<name>/kernel` [fh, fw, channels, output_dim]. `padding` is "SAME" or "VALID".
    """
    with tf.compat.v1.variable_scope(name, default_name="conv2d"):
        kernel = _kernel(x, output_dim, filter_size, filter_initializer, variable_dtype)
        return for_graphs(ops.conv2d)(x, kernel, list(strides), padding)


def conv3d(
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int] = (3, 3, 3),
    strides: Sequence[int] = (1, 1, 1),
    padding: str = "SAME",
    filter_initializer: Any = None,
    variable_dtype: VariableDType | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolves volumes [..., depth, height, width, channels]. See `conv2d`."""
    with tf.compat.v1.variable_scope(name, default_name="conv3d"):
        kernel = _kernel(x, output_dim, filter_size, filter_initializer, variable_dtype)
        return for_graphs(ops.conv3d)(x, kernel, list(strides), padding)


def conv2d_with_blocks(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int] = (3, 3),
    strides: Sequence[int] = (1, 1),
    padding: str = "SAME",
    h_blocks_dim: language.Dimension | None = None,
    w_blocks_dim: language.Dimension | None = None,
    filter_initializer: Any = None,
    variable_dtype: VariableDType | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolves images in blocks: [.., h_blocks, w_blocks, height, width, channels], as `conv2d` the whole images.

    Without the dimension of its blocks, height or width is whole. Strides also have the result of whole images; in
    Mesh TensorFlow they had another.

    Raises:
      ShapeError: the padding is not "SAME", or the result does not divide into the blocks.
    """
    blocks = (h_blocks_dim, w_blocks_dim)
    return _with_blocks(
        lambda whole: conv2d(
            whole, output_dim, filter_size, strides, padding, filter_initializer, variable_dtype, name
        ),
        x,
        blocks,
        padding,
    )


def conv3d_with_blocks(  # noqa: PLR0913  # the original's parameters
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int] = (3, 3, 3),
    strides: Sequence[int] = (1, 1, 1),
    padding: str = "SAME",
    d_blocks_dim: language.Dimension | None = None,
    h_blocks_dim: language.Dimension | None = None,
    filter_initializer: Any = None,
    variable_dtype: VariableDType | None = None,
    name: str | None = None,
) -> Tensor:
    """Convolves volumes in blocks: [.., d_blocks, h_blocks, depth, height, width, channels].

    See `conv2d_with_blocks`.
    """
    blocks = (d_blocks_dim, h_blocks_dim, None)
    return _with_blocks(
        lambda whole: conv3d(
            whole, output_dim, filter_size, strides, padding, filter_initializer, variable_dtype, name
        ),
        x,
        blocks,
        padding,
    )


def _with_blocks(
    conv: Callable[[Tensor], Tensor], x: Tensor, blocks: Sequence[language.Dimension | None], padding: str
) -> Tensor:
    """Joins blocks to images, whose dimensions have the blocks' names and so their layout, and cuts the result."""
    sizes = x.shape.dims[-1 - len(blocks) : -1]
    block_of = {d.name: b for d, b in zip(sizes, blocks, strict=True) if b is not None}
    if not block_of:
        return conv(x)
    if padding != "SAME":
        raise ShapeError(f'a convolution in blocks has the padding "SAME", and not {padding!r}; without blocks: conv2d')
    names = [b.name for b in block_of.values()]
    batch = [d for d in x.shape.dims[: -1 - len(blocks)] if d.name not in names]
    apart = [e for d in sizes for e in ([block_of[d.name], d] if d.name in block_of else [d])]
    joined = [
        Dimension(block_of[d.name].name, block_of[d.name].size * d.size) if d.name in block_of else d for d in sizes
    ]
    whole = mtf.reshape(mtf.transpose(x, [*batch, *apart, x.shape.dims[-1]]), [*batch, *joined, x.shape.dims[-1]])
    y = conv(whole)
    after: dict[str, language.Dimension] = {}
    for d, own in zip(sizes, y.shape.dims[-1 - len(blocks) : -1], strict=True):
        parts = block_of[d.name].size if d.name in block_of else 1
        if own.size % parts:
            raise ShapeError(f"the result has size {own.size} along {own.name}, which {parts} blocks do not divide")
        after[d.name] = Dimension(d.name, own.size // parts)
    cut = mtf.reshape(y, [*batch, *(after.get(d.name, d) for d in apart), y.shape.dims[-1]])
    return mtf.transpose(cut, [*(after.get(d.name, d) for d in x.shape.dims[:-1]), y.shape.dims[-1]])


def conv2d_transpose(
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int] = (2, 2),
    strides: Sequence[int] = (2, 2),
    padding: str = "SAME",
    filter_initializer: Any = None,
    variable_dtype: VariableDType | None = None,
    name: str | None = None,
) -> Tensor:
    """Applies the transpose of a convolution. Its kernel is [fh, fw, output_dim, channels]."""
    with tf.compat.v1.variable_scope(name, default_name="conv2d_transpose"):
        kernel = _kernel(x, output_dim, filter_size, filter_initializer, variable_dtype, is_transpose=True)
        return for_graphs(ops.conv2d_transpose)(x, kernel, list(strides), padding)


def conv3d_transpose(
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int] = (2, 2, 2),
    strides: Sequence[int] = (2, 2, 2),
    padding: str = "SAME",
    filter_initializer: Any = None,
    variable_dtype: VariableDType | None = None,
    name: str | None = None,
) -> Tensor:
    """Applies the transpose of a convolution of volumes. See `conv2d_transpose`."""
    with tf.compat.v1.variable_scope(name, default_name="conv3d_transpose"):
        kernel = _kernel(x, output_dim, filter_size, filter_initializer, variable_dtype, is_transpose=True)
        return for_graphs(ops.conv3d_transpose)(x, kernel, list(strides), padding)


def _kernel(
    x: Tensor,
    output_dim: language.Dimension,
    filter_size: Sequence[int],
    initializer: Any,
    variable_dtype: VariableDType | None,
    *,
    is_transpose: bool = False,
) -> Tensor:
    names = _FILTER_DIMS[len(filter_size)]
    window = [Dimension(name, size) for name, size in zip(names, filter_size, strict=True)]
    ends = [x.shape.dims[-1], output_dim]
    shape = Shape([*window, *(reversed(ends) if is_transpose else ends)])
    dtype = variable_dtype or VariableDType(tf.float32, tf.float32, x.dtype)
    start = initializer or VarianceScalingInitializer()([*window, ends[0]], [ends[1]])
    return mtf.cast(get_variable(x.mesh, "kernel", shape, dtype, initializer=start), x.dtype)


def max_pool2d(x: Tensor, ksize: Sequence[int] = (2, 2), name: str = "max_pool2d") -> Tensor:
    """The largest element of each window of the two dimensions before the last. Windows do not overlap."""
    return for_graphs(ops.max_pool)(x, _windows(x, ksize), name=name)


def max_pool3d(x: Tensor, ksize: Sequence[int] = (2, 2, 2), name: str = "max_pool3d") -> Tensor:
    """The largest element of each window of the three dimensions before the last. Windows do not overlap."""
    return for_graphs(ops.max_pool)(x, _windows(x, ksize), name=name)


def avg_pool2d(x: Tensor, ksize: Sequence[int] = (2, 2), name: str = "avg_pool2d") -> Tensor:
    """The mean of each window of the two dimensions before the last. Windows do not overlap."""
    return for_graphs(ops.avg_pool)(x, _windows(x, ksize), name=name)


def avg_pool3d(x: Tensor, ksize: Sequence[int] = (2, 2, 2), name: str = "avg_pool3d") -> Tensor:
    """The mean of each window of the three dimensions before the last. Windows do not overlap."""
    return for_graphs(ops.avg_pool)(x, _windows(x, ksize), name=name)


def _windows(x: Tensor, ksize: Sequence[int]) -> dict[str, int]:
    dims = x.shape.dims[-1 - len(ksize) : -1]
    return {dim.name: size for dim, size in zip(dims, ksize, strict=True)}
