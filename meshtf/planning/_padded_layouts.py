"""Layouts that split a dimension into parts that its size is no multiple of: the last slices are padded.

Every core's slice has the same size, the size of a part rounded up; what lies beyond the dimension's end may be
anything. Only weight-update sharding chooses such layouts, and only elementwise work is done in them: whoever else
reads such a tensor reads it whole along the dimension, or with zeros beyond its end.

[rows:10] among four cores: slices of 3, of which the last holds row 9 and two elements that are nobody's. On the way in
a value is padded to [rows:12] and moved as any other; on the way out it is moved as [rows:12] and cropped to 10.
"""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes, TensorLayout
from meshtf.planning.plan import Core


def uneven_dims(layout: TensorLayout, shape: Shape, mesh_shape: Shape) -> list[int]:
    """The dimensions that are split into parts of which some are padded."""
    return [i for i, (d, n) in enumerate(zip(shape, layout.parts(mesh_shape), strict=True)) if d.size % n]


def evened(layout: TensorLayout, shape: Shape, mesh_shape: Shape) -> TensorLayout:
    """The layout with these dimensions whole."""
    return whole_in(layout, uneven_dims(layout, shape, mesh_shape))


def whole_in(layout: TensorLayout, dims: list[int]) -> TensorLayout:
    """The layout with these dimensions whole."""
    return TensorLayout(tuple(() if i in dims else axes for i, axes in enumerate(layout.axes)))


def padded_shape(shape: Shape, mesh_shape: Shape, *layouts: TensorLayout) -> Shape:
    """The shape with each dimension rounded up to what all of the layouts divide, where one does not divide it."""
    dims = []
    for i, dim in enumerate(shape):
        parts = [layout.parts(mesh_shape)[i] for layout in layouts]
        block = math.lcm(*parts) if any(dim.size % n for n in parts) else 1
        dims.append(Dimension(dim.name, -(-dim.size // block) * block))
    return Shape(dims)


@dataclasses.dataclass(frozen=True, slots=True)
class ZeroPadding:
    """Writes zeros beyond the end of a dimension of which a core has `size` elements, along these mesh axes."""

    dim: int
    axes: Axes
    size: int
    end: int

    def __call__(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        position = core.coordinate(self.axes) * self.size + tf.range(self.size)
        is_inside = tf.reshape(position < self.end, [-1] + [1] * (len(x.shape) - self.dim - 1))
        return tf.where(is_inside, x, tf.zeros([], x.dtype))
