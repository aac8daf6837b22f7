"""The operations of a cell: convolutions with normalization, and poolings, of images [.., height, width, filters].

Every operation keeps the dimensions before `height`, such as `stage` in a pipeline. Nothing is assigned: statistics are
recorded in a `Normalization`.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers import VarianceScalingInitializer

FILTERS = "filters"

_WINDOW = ("filter_height", "filter_width")
_INITIALIZER = VarianceScalingInitializer(scale=2.0, mode="fan_out", distribution="untruncated_normal")


@dataclasses.dataclass
class Normalization:
    """Batch normalization that records its statistics, so that the caller can assign moving averages of them.

    Attributes:
      is_training: whether statistics are those of the batch.
      epsilon: the number added to variances.
      batch: the name of the images' first dimension.
      moments: for each moving average in order, its variable's full name and the batch's value of it.
    """

    is_training: bool
    epsilon: float
    batch: str = "batch"
    moments: list[tuple[str, mtf.Tensor]] = dataclasses.field(default_factory=list)

    def __call__(self, x: mtf.Tensor) -> mtf.Tensor:
        """x [.., batch, height, width, filters], normalized over its batch, height and width."""
        mesh, shape, wide = x.mesh, x.shape[-1:], x if x.dtype == tf.float64 else x.astype(tf.float32)
        with mtf.variable_scope("batch_norm") as scope:
            averages = [
                mtf.get_variable(mesh, name, shape, dtype=wide.dtype, initializer=fill, trainable=False)
                for name, fill in (("moving_mean", mtf.zeros), ("moving_variance", mtf.ones))
            ]
            scale, bias = (
                mtf.get_variable(mesh, name, shape, initializer=fill).astype(wide.dtype)
                for name, fill in (("scale", mtf.ones), ("bias", mtf.zeros))
            )
            if not self.is_training:
                mean, variance = averages
                return ((wide - mean) * (mtf.rsqrt(variance + self.epsilon) * scale) + bias).astype(x.dtype)
            kept = mtf.Shape([dim for dim in x.shape if dim.name not in (self.batch, *x.shape.dimension_names[-3:-1])])
            y, *found = mtf.layers.normalized_batch(wide, scale, bias, self.epsilon, kept)
            for name, value in zip(("moving_mean", "moving_variance"), found, strict=True):
                self.moments.append((f"{scope}/{name}", mtf.stop_gradient(value)))
            return y.astype(x.dtype)


def applied(name: str, x: mtf.Tensor, stride: int, normalize: Normalization) -> mtf.Tensor:
    """The operation of this name, which keeps the number of filters: [.., height, width, filters] -> divided by stride.

    Each convolution follows a rectifier and is normalized. Convolutions larger than 1x1 have a quarter of the filters,
    between two 1x1 convolutions.
    """
    filters = x.shape[-1].size
    if name == "none":
        return x
    if "pool" in name:
        kind, _, size = name.split("_")
        windows = {dim.name: int(size[0]) for dim in x.shape[-3:-1]}
        return (mtf.max_pool if kind == "max" else mtf.avg_pool)(x, windows, stride, "SAME")
    if name == "1x1":
        return convolved(x, filters, normalize, strides=(stride, stride), name="convolve")
    narrow = max(1, filters // 4)
    x = convolved(x, narrow, normalize, name="narrow")
    if name == "3x3":
        x = convolved(x, narrow, normalize, (3, 3), (stride, stride), name="convolve")
    else:
        x = convolved(x, narrow, normalize, (1, 7), (1, stride), name="rows")
        x = convolved(x, narrow, normalize, (7, 1), (stride, 1), name="columns")
    return convolved(x, filters, normalize, name="widen")


OPERATIONS = ("none", "max_pool_2x2", "max_pool_3x3", "avg_pool_3x3", "1x1", "3x3", "1x7_7x1")
"""The names of the operations."""


def convolved(
    x: mtf.Tensor,
    filters: int,
    normalize: Normalization,
    size: tuple[int, int] = (1, 1),
    strides: tuple[int, int] = (1, 1),
    *,
    name: str,
) -> mtf.Tensor:
    """A rectifier, a convolution and normalization."""
    with mtf.variable_scope(name):
        return normalize(convolution(mtf.relu(x), filters, size, strides))


def halved(x: mtf.Tensor, filters: int, normalize: Normalization, *, name: str) -> mtf.Tensor:
    """Half the filters from the pixels of even rows and columns, and half from those of odd ones, normalized.

    A 1x1 convolution with a stride would drop the pixels of odd rows and columns.
    """
    x = mtf.relu(x)
    height, width = x.shape[-3:-1]
    odd = mtf.shift(mtf.shift(x, -1, height, wrap=False), -1, width, wrap=False)
    with mtf.variable_scope(name):
        with mtf.variable_scope("even"):
            even = convolution(x, filters - filters // 2, strides=(2, 2))
        with mtf.variable_scope("odd"):
            odd = convolution(odd, filters // 2, strides=(2, 2))
        return normalize(mtf.concat([even, odd], FILTERS))


def convolution(
    x: mtf.Tensor, filters: int, size: tuple[int, int] = (1, 1), strides: tuple[int, int] = (1, 1)
) -> mtf.Tensor:
    """A convolution without a bias. In a pipeline, the kernel has `stage` too: each stage convolves its own images."""
    *before, height, width, inner = x.shape
    if inner.name == FILTERS:
        x, inner = mtf.rename_dimension(x, FILTERS, f"_{FILTERS}"), mtf.Dimension(f"_{FILTERS}", inner.size)
    outer, window = mtf.Dimension(FILTERS, filters), mtf.Shape([*zip(_WINDOW, size, strict=True)])
    fill = _INITIALIZER(window + mtf.Shape([inner]), window + mtf.Shape([outer]))
    kernel = mtf.get_variable(x.mesh, "kernel", window + mtf.Shape([inner, outer]), initializer=fill)
    return mtf.convolution(
        x,
        mtf.cast(kernel, x.dtype),
        {height.name: _WINDOW[0], width.name: _WINDOW[1]},
        [*before, height, width, outer],
        strides={height.name: strides[0], width.name: strides[1]},
    )
