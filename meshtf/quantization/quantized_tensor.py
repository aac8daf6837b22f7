"""Symmetric quantization of tensors, with one scale for each row, or for each group of neighbours in a row."""

from __future__ import annotations

import dataclasses
import math

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function, says_where
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import DtypeError, ShapeError, nearest
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.quantization.number_formats import NUMBER_FORMATS
from meshtf.quantization.quantization import FLOAT8, INT8
from meshtf.quantization.scales import divided, scale_of, scaled

NUMBERS = (INT8, FLOAT8)
"""The number formats of a QuantizedTensor."""


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class QuantizedTensor:
    """A tensor as 8-bit numbers times float32 scales. `quantize` makes one.

    The dimensions of `scale` say which numbers share a scale. Along a dimension that `scale` lacks, all numbers do.
    Along a dimension that is smaller in `scale`, groups of neighbours do: for values of `hidden:8`, a scale of
    `hidden:2` has one number for the first four and one for the last four. The names are those of the tensor, so the
    rules that split the numbers split the scale.

    Attributes:
      values: int8, with the dimensions of the tensor.
      scale: float32, with some of these dimensions.
      numbers: the format of the values: "int8", or "float8_e4m3" for the bytes of such floats.

    Raises:
      DtypeError: the values are not int8, or the scale is not float32, or there are no such numbers.
      ShapeError: the scale has a dimension that the values lack, or one whose size does not divide theirs.

    Examples:
      >>> q = mtf.quantization.QuantizedTensor(mtf.ones(mesh, "hidden:8", tf.int8), mtf.fill(mesh, 0.5, "hidden:2"))
      >>> q.shape, value(q.dequantized())
      (Shape[hidden:8], array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5], dtype=float32))
    """

    values: Tensor
    scale: Tensor
    numbers: str = INT8

    @says_where
    def __post_init__(self) -> None:
        _check_numbers(self.numbers)
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
        return mtf.cast(scaled(NUMBER_FORMATS[self.numbers].read(self.values, self.shape), self.scale), dtype)


@language_function
def quantize(
    x: Tensor, reduced_dims: ShapeLike, *, group_size: int | None = None, numbers: str = INT8
) -> QuantizedTensor:
    """Quantizes x symmetrically: one scale for all numbers along `reduced_dims`, or for each group of them.

    A scale is the largest magnitude among its numbers, divided by 127. A number is x / scale, rounded to the nearest
    integer, ties to even. So `dequantized()` differs from x by at most half a scale, and a few roundings of float32.
    For float8_e4m3 the largest magnitude is divided by 448, and x / scale is rounded to the nearest of these floating
    numbers: `dequantized()` differs from x by at most 1/16 of x, or by scale / 1024 where that is more.

    If all numbers of a scale are 0 (or smaller than 1.5e-36), they become 0 and the scale is 1. If one is infinite or
    NaN, all numbers that share its scale dequantize to NaN.

    Pass the dimensions that a product sums over. For a weight [hidden, d_ff] that is `hidden`: each output has a scale
    (weights per output channel). For activations [batch, hidden] it is also `hidden`: each row has a scale (dynamic
    quantization of activations).

    Args:
      x: a floating tensor.
      reduced_dims: dimensions of x; numbers along them share a scale.
      group_size: the number of neighbours, along a single reduced dimension, that share a scale; None: all.
      numbers: "int8" or "float8_e4m3".

    Raises:
      DtypeError: x is not floating, or there are no such numbers.
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
    _check_numbers(numbers)
    reduced, chosen = x.shape.only(reduced_dims), NUMBER_FORMATS[numbers]
    scale_shape = x.shape - reduced if group_size is None else _grouped(x.shape, reduced, group_size)
    scale = scale_of(x, scale_shape, chosen.largest)
    return QuantizedTensor(chosen.kept(divided(x, scale)), scale, numbers)


def quantized_by(x: Tensor, scale: Tensor, *, reduced: ShapeLike, numbers: str) -> QuantizedTensor:
    """Quantizes x by known scales. Magnitudes that are too large are clipped.

    int8 has no NaN. So if a row along the reduced dimensions has a NaN, its scale becomes NaN.
    """
    values = NUMBER_FORMATS[numbers].kept(divided(x, scale))
    if numbers == INT8:
        rows = x.shape - x.shape.only(reduced)
        scale = mtf.where(mtf.reduce_any(mtf.is_nan(x), output_shape=rows), math.nan, scale, output_shape=rows)
    return QuantizedTensor(values, scale, numbers)


def _check_numbers(numbers: str) -> None:
    if numbers not in NUMBERS:
        raise DtypeError(
            f"the numbers of a QuantizedTensor must be {' or '.join(NUMBERS)}, and are {numbers!r}"
            f"{nearest(str(numbers), NUMBERS)}"
        )


def _grouped(shape: Shape, reduced: Shape, group_size: int) -> Shape:
    if len(reduced) != 1:
        raise ShapeError(f"group_size makes groups along one dimension, but reduced_dims are [{reduced}]")
    (dim,) = reduced
    if group_size < 1 or dim.size % group_size:
        raise ShapeError(f'group_size {group_size} does not divide dimension "{dim.name}" of size {dim.size}')
    return shape.resize_dimension(dim.name, dim.size // group_size)
