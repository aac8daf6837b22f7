"""Scales: which numbers share one, and how a scale is found and applied."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import Dimension, Shape
from meshtf.graph.tensor import Tensor

_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
"""Smaller scales would have fewer digits, and some devices flush them to 0."""


def scale_of(x: Tensor, scale_shape: Shape, largest: float) -> Tensor:
    """The float32 scales: the largest magnitude of each group, divided by `largest`; 1 for a group of zeros."""
    wide = mtf.reshape(mtf.cast(x, tf.float32), in_groups(x.shape, scale_shape))
    scale = mtf.reduce_max(mtf.abs(wide), output_shape=scale_shape) / largest
    return mtf.where(scale < _SMALLEST_SCALE, 1.0, scale)  # NaN stays NaN


def divided(x: Tensor, scale: Tensor) -> Tensor:
    """x in float32, each number divided by its scale or its group's."""
    return mtf.reshape(mtf.reshape(mtf.cast(x, tf.float32), in_groups(x.shape, scale.shape)) / scale, x.shape)


def scaled(numbers: Tensor, scale: Tensor) -> Tensor:
    """Numbers in float32, each times its scale or its group's."""
    return mtf.reshape(mtf.reshape(numbers, in_groups(numbers.shape, scale.shape)) * scale, numbers.shape)


def in_groups(shape: Shape, scale_shape: Shape) -> Shape:
    """The shape with each dimension that the scale groups as two dimensions: the groups, and the members of a group.

    The groups keep the name, so that a layout splits them as it splits the dimension, and a reshape sends nothing.
    """
    dims: list[Dimension] = []
    for dim in shape:
        groups = scale_shape.dims[scale_shape.axis(dim.name)] if scale_shape.has(dim.name) else dim
        dims.append(groups)
        if groups.size != dim.size:
            dims.append(Dimension(f"{dim.name}_in_group", dim.size // groups.size))
    return Shape(dims)
