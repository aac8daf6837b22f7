"""Layouts that split a dimension into more parts than divide its size: the last slices are padded.

Every core's slice has the same size, the size of a part rounded up. The elements beyond the dimension's end may have
any value, even an infinite one. An operation whose results depend on them either states the value that it needs there
(`Fill`), or receives its tensors whole along the dimension.

For example, [rows:10] on four cores has slices of 3. The last slice holds row 9 and two elements of padding. A value
that enters this layout is padded to [rows:12] and moved like any other. A value that leaves it is moved as [rows:12]
and cropped to 10.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes, TensorLayout

if TYPE_CHECKING:
    from meshtf.planning.plan import Core


def uneven_dims(layout: TensorLayout, shape: Shape, mesh_shape: Shape) -> list[int]:
    """The dimensions that are split into parts of which some are padded."""
    return [i for i, (d, n) in enumerate(zip(shape.dims, layout.parts(mesh_shape), strict=True)) if d.size % n]


def whole_in(layout: TensorLayout, dims: list[int]) -> TensorLayout:
    """The layout with these dimensions whole."""
    return TensorLayout(tuple(() if i in dims else axes for i, axes in enumerate(layout.axes)))


def padded_shape(shape: Shape, mesh_shape: Shape, *layouts: TensorLayout) -> Shape:
    """The shape with each dimension rounded up to a size that all of the layouts divide."""
    if not any(uneven_dims(layout, shape, mesh_shape) for layout in layouts):
        return shape
    dims = []
    for dim, *parts in zip(shape, *(layout.parts(mesh_shape) for layout in layouts), strict=True):
        block = math.lcm(*parts) if any(dim.size % n for n in parts) else 1
        dims.append(Dimension(dim.name, -(-dim.size // block) * block))
    return Shape(dims)


LOWEST, HIGHEST = "lowest", "highest"
"""Stand for a dtype's lowest and highest number, which change no maximum and no minimum."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fill:
    """The value that an operation needs in the padding, beyond the ends of dimensions.

    number: the value itself, or LOWEST, or HIGHEST. along: names of the dimensions for which it matters; None: all.
    """

    number: complex | bool | str = 0
    along: frozenset[str] | None = None

    def constant(self, dtype: tf.DType) -> tf.Tensor:
        """The fill value as a tensor of this dtype."""
        number = self.number_in(dtype)
        return tf.constant(number, dtype) if isinstance(self.number, str) else tf.cast(np.asarray(number), dtype)

    def number_in(self, dtype: tf.DType) -> complex | bool:
        """The fill value for this dtype, with LOWEST and HIGHEST replaced by numbers."""
        if not isinstance(self.number, str):
            return self.number
        is_lowest = self.number == LOWEST
        if dtype == tf.bool:
            return not is_lowest
        if dtype.is_floating:
            return -math.inf if is_lowest else math.inf
        return dtype.min if is_lowest else dtype.max


ZEROS = Fill()


@dataclasses.dataclass(frozen=True, slots=True)
class Filling:
    """Fills the padding at and after element `end` of a dimension, which is split over `axes` into slices of `size`
    elements."""

    fill: Fill
    dim: int
    axes: Axes
    size: int
    end: int

    def __call__(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        position = core.coordinate(self.axes) * self.size + tf.range(self.size)
        is_inside = tf.reshape(position < self.end, [-1] + [1] * (len(x.shape) - self.dim - 1))
        return tf.where(is_inside, x, self.fill.constant(x.dtype))
