"""Pooling to a size that you give, whatever the size of the image. Spatial dimensions may be split.

Output i of m covers the elements from floor(i · n / m) up to, but not including, ceil((i + 1) · n / m). Windows overlap
where m does not divide n.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import DtypeError, ShapeError
from meshtf.layers._operands import checked_operand

Sizes: TypeAlias = "Mapping[str, int | mtf.Dimension]"


@language_function
def adaptive_avg_pool(x: mtf.Tensor, sizes: Sizes) -> mtf.Tensor:
    """Means over windows, so that dimensions get the sizes that you give.

    Args:
      x: floating.
      sizes: the size of the result along some dimensions, by name. Size 1 is the mean over the whole dimension. Give a
        dimension instead of a size to rename it in the result: a layout rule for the name must fit the new size.

    Returns:
      The dimensions of x, resized, in its dtype. Means are taken in float32, or in float64 where x is.

    Raises:
      ShapeError: x lacks a dimension, or a size is not from 1 to the size of x.
      DtypeError: x is not floating.

    Examples:
      >>> image = mtf.ones(mesh, "batch:4 height:9 width:7 channels:3")
      >>> mtf.layers.adaptive_avg_pool(image, {"height": 4, "width": 1}).shape
      Shape[batch:4 height:4 width:1 channels:3]
    """
    windows = _windows(x, sizes)
    wide = x if x.dtype == tf.float64 else x.astype(tf.float32)
    return functools.reduce(_average, windows, wide).astype(x.dtype)


@language_function
def adaptive_max_pool(x: mtf.Tensor, sizes: Sizes) -> mtf.Tensor:
    """Maxima over windows, so that dimensions get the sizes that you give. Equal maxima share the gradient.

    Args:
      x: floating.
      sizes: the size of the result along some dimensions, by name. Size 1 is the maximum over the whole dimension. Give
        a dimension instead of a size to rename it in the result: a layout rule for the name must fit the new size.

    Returns:
      The dimensions of x, resized, in its dtype.

    Raises:
      ShapeError: x lacks a dimension, or a size is not from 1 to the size of x.
      DtypeError: x is not floating.

    Examples:
      >>> value(mtf.layers.adaptive_max_pool(mtf.constant(mesh, [1.0, 4.0, 2.0, 3.0], "n:4"), {"n": 2}))
      array([4., 3.], dtype=float32)
    """
    return functools.reduce(_maximum, _windows(x, sizes), x)


@dataclasses.dataclass(frozen=True)
class _Windows:
    """The windows along a dimension, and the dimension that they become."""

    dim: mtf.Dimension
    pooled: mtf.Dimension

    @property
    def new(self) -> mtf.Dimension:
        """The pooled dimension under a name that no rule splits."""
        return mtf.Dimension("(pooled)", self.pooled.size)

    @property
    def ends(self) -> list[tuple[int, int]]:
        n, m = self.dim.size, self.pooled.size
        return [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]


def _windows(x: mtf.Tensor, sizes: Sizes) -> list[_Windows]:
    found = [
        _Windows(
            _checked(x).shape[x.shape.axis(name)],
            size if isinstance(size, mtf.Dimension) else mtf.Dimension(name, size),
        )
        for name, size in sizes.items()
    ]
    for dim, pooled in ((window.dim, window.pooled) for window in found):
        if not 1 <= pooled.size <= dim.size:
            raise ShapeError(f"[{dim}] cannot be pooled to size {pooled.size}; give 1 to {dim.size}")
    return found


def _average(x: mtf.Tensor, windows: _Windows) -> mtf.Tensor:
    """The mean of each window. In a product with zeros and ones, a NaN of one window would reach all others."""
    dim, pooled = windows.dim, windows.pooled
    # These two gather nothing if the dimension is split.
    if pooled.size == 1:
        return mtf.reshape(x.mean(dim), [pooled if each == dim else each for each in x.shape])
    if pooled.name == dim.name and not dim.size % pooled.size and x.size:
        return mtf.avg_pool(x, {dim.name: dim.size // pooled.size})
    elements, _ = _elements(x, windows)  # 0 behind the end of a shorter window
    shape = [windows.new if each == dim else each for each in x.shape]
    counts = mtf.constant(x.mesh, [end - begin for begin, end in windows.ends], [windows.new], x.dtype)
    return (mtf.reduce_sum(elements, output_shape=shape) / counts).rename({windows.new.name: pooled.name})


def _maximum(x: mtf.Tensor, windows: _Windows) -> mtf.Tensor:
    """The maximum of each window. A shorter window has the lowest number behind its end."""
    elements, where = _elements(x, windows)
    elements = mtf.where(where >= 0, elements, float("-inf"))
    shape = [windows.new if each == windows.dim else each for each in x.shape]
    return mtf.reduce_max(elements, output_shape=shape).rename({windows.new.name: windows.pooled.name})


def _elements(x: mtf.Tensor, windows: _Windows) -> tuple[mtf.Tensor, mtf.Tensor]:
    """A copy of each window's elements, and their places in x, [(pooled), (within)]; -1 behind a shorter window."""
    within = mtf.Dimension("(within)", max(end - begin for begin, end in windows.ends))
    places = np.array(
        [[begin + i if begin + i < end else -1 for i in range(within.size)] for begin, end in windows.ends]
    )
    where = mtf.constant(x.mesh, places, [windows.new, within], tf.int32)
    return mtf.gather(x, where, windows.dim), where


def _checked(x: mtf.Tensor) -> mtf.Tensor:
    if not checked_operand(x, "the image").dtype.is_floating:
        raise DtypeError(f"a floating tensor is needed, not {x.dtype.name}; convert with mtf.cast")
    return x
