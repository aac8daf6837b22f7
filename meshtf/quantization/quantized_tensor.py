"""Symmetric quantization to int8: numbers that share a scale are those of a row, or of a group of its neighbours."""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function, says_where
from meshtf.dimension import Dimension, Shape, ShapeLike
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.tensor import Tensor, check_tensor

LARGEST = 127
"""The largest magnitude of a quantized number. -128 is not used, so that a number and its negative are alike."""

_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
"""Smaller scales would have fewer digits, and some devices take them for 0."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A tensor as int8 numbers times float32 scales. `quantize` makes one.

    The dimensions of the scale say which numbers share one. Along a dimension that it lacks, all do. Along a dimension
    that it has in a smaller size, groups of neighbours do: for values of `hidden:8`, a scale of `hidden:2` has one
    number for the first four and one for the last four. The names are the tensor's. So the rules that split the
    numbers split the scale.

    Attributes:
      values: int8, with the dimensions of the tensor.
      scale: float32, with some of these dimensions.

    Raises:
      DtypeError: the values are not int8, or the scale is not float32.
      ShapeError: the scale has a dimension that the values lack, or one whose size does not divide theirs.

    Examples:
      >>> q = mtf.quantization.QuantizedTensor(mtf.ones(mesh, "hidden:8", tf.int8), mtf.fill(mesh, 0.5, "hidden:2"))
      >>> q.shape, value(q.dequantized())
      (Shape[hidden:8], array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], dtype=float32))
    """

    values: Tensor
    scale: Tensor

    @says_where
    def __post_init__(self) -> None:
        found = (check_tensor(self.values).dtype, check_tensor(self.scale).dtype)
        if found != (tf.int8, tf.float32):
            raise DtypeError(
                f"a QuantizedTensor has values of int8 and a scale of float32, not {found[0].name} and {found[1].name}"
            )
        for dim in self.scale.shape:
            if self.shape.dims[self.shape.axis(dim.name)].size % dim.size:
                raise ShapeError(
                    f'the scale [{self.scale.shape}] has {dim.size} groups along "{dim.name}", which do not divide the '
                    f"values [{self.shape}]"
                )

    @property
    def shape(self) -> Shape:
        """The shape of the values, which is the tensor's."""
        return self.values.shape

    def dequantized(self, dtype: tf.DType = tf.float32) -> Tensor:
        """The tensor: each number times its scale, in float32, then converted to `dtype`.

        Args:
          dtype: a floating dtype.
        """
        return mtf.cast(scaled(mtf.cast(self.values, tf.float32), self.scale), dtype)


@language_function
def quantize(x: Tensor, reduced_dims: ShapeLike, *, group_size: int | None = None) -> QuantizedTensor:
    """x as int8 numbers times scales: symmetric, one scale for all numbers along `reduced_dims`, or for each group.

    A scale is the largest magnitude among its numbers, divided by 127. A number is x / scale, rounded to the nearest
    integer, halves to even. So `dequantized()` differs from x by at most half a scale, and a few roundings of float32.
    Where all numbers are 0 (or smaller than 1.5e-36), they become 0 and the scale is 1. Where one is infinite or NaN,
    the numbers that share its scale dequantize to NaN.

    Give the dimensions that a product sums over. For a weight [hidden, d_ff] that is `hidden`: each output has a scale
    (weights per output channel). For activations [batch, hidden] it is `hidden`, too: each row has a scale (dynamic
    quantization of activations).

    Args:
      x: a floating tensor.
      reduced_dims: dimensions of x: numbers along them share a scale.
      group_size: if given, that many neighbours along the one reduced dimension share a scale.

    Raises:
      DtypeError: x is not floating.
      ShapeError: x lacks a dimension; or there are groups of several dimensions, or of a size that does not divide.

    Examples:
      >>> w = mtf.constant(mesh, [[1.27, 0.0], [-0.3, 0.0]], "hidden:2 d_ff:2")
      >>> q = mtf.quantization.quantize(w, "hidden")
      >>> value(q.values), q.scale.shape
      (array([[127,   0],
             [-30,   0]], dtype=int8), Shape[d_ff:2])
      >>> mtf.quantization.quantize(x, "hidden", group_size=4).scale.shape
      Shape[batch:4 hidden:2]
    """
    if not check_tensor(x).dtype.is_floating:
        raise DtypeError(f"a floating tensor is needed, not {x.dtype.name}; convert it with mtf.cast")
    reduced = x.shape.only(reduced_dims)
    scale_shape = x.shape - reduced if group_size is None else _grouped(x.shape, reduced, group_size)
    wide = mtf.reshape(mtf.cast(x, tf.float32), in_groups(x.shape, scale_shape))
    scale = scale_of(x, scale_shape, float(LARGEST))
    whole = mtf.clip_by_value(mtf.round(wide / scale), -float(LARGEST), float(LARGEST))
    return QuantizedTensor(mtf.reshape(mtf.cast(whole, tf.int8), x.shape), scale)


def quantized_by(x: Tensor, scale: Tensor) -> QuantizedTensor:
    """x as int8 numbers times scales that are known. Numbers beyond 127 scales become 127, and NaN has no number."""
    whole = mtf.round(mtf.cast(x, tf.float32) / scale)
    return QuantizedTensor(mtf.cast(mtf.clip_by_value(whole, -float(LARGEST), float(LARGEST)), tf.int8), scale)


def scale_of(x: Tensor, scale_shape: Shape, largest: float) -> Tensor:
    """The scales, float32, by which the largest magnitude of each group becomes `largest`. 1 for zeros."""
    wide = mtf.reshape(mtf.cast(x, tf.float32), in_groups(x.shape, scale_shape))
    scale = mtf.reduce_max(mtf.abs(wide), output_shape=scale_shape) / largest
    return mtf.where(scale < _SMALLEST_SCALE, 1.0, scale)  # NaN stays NaN


def scaled(numbers: Tensor, scale: Tensor) -> Tensor:
    """Numbers in float32, each times its scale or its group's."""
    return mtf.reshape(mtf.reshape(numbers, in_groups(numbers.shape, scale.shape)) * scale, numbers.shape)


def in_groups(shape: Shape, scale_shape: Shape) -> Shape:
    """The shape with each dimension that the scale has in groups as two: its groups, by its own name, and the members.

    The groups keep the name, so that a layout splits them as it splits the dimension, and a reshape sends nothing.
    """
    dims: list[Dimension] = []
    for dim in shape:
        groups = scale_shape.dims[scale_shape.axis(dim.name)] if scale_shape.has(dim.name) else dim
        dims.append(groups)
        if groups.size != dim.size:
            dims.append(Dimension(f"{dim.name}_in_group", dim.size // groups.size))
    return Shape(dims)


def _grouped(shape: Shape, reduced: Shape, group_size: int) -> Shape:
    if len(reduced) != 1:
        raise ShapeError(f"group_size is for groups along one dimension, and reduced_dims are [{reduced}]")
    (dim,) = reduced
    if group_size < 1 or dim.size % group_size:
        raise ShapeError(f'group_size {group_size} does not divide dimension "{dim.name}" of size {dim.size}')
    return shape.resize_dimension(dim.name, dim.size // group_size)
