"""The number formats of quantized kernels: how numbers are made from floats, stored, and read again."""

from __future__ import annotations

from typing import Protocol

import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import Dimension, Shape
from meshtf.graph.tensor import Tensor
from meshtf.quantization.float8 import LARGEST_FLOAT8, float8_bytes, float8_numbers
from meshtf.quantization.quantization import FLOAT8, INT4, INT8, Quantization
from meshtf.quantization.scales import divided, scale_of, scaled

_PAIR = "_pair"


class NumberFormat(Protocol):
    """A number format of quantized kernels.

    Attributes:
      largest: the greatest magnitude. The largest weight of a group becomes this number.
    """

    largest: float

    def kept_shape(self, shape: Shape) -> Shape:
        """The shape of the stored form of numbers of this shape."""
        ...

    def kept(self, x: Tensor) -> Tensor:
        """The stored form of float32 numbers, rounded to the nearest. Magnitudes above `largest` become `largest`."""
        ...

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        """The numbers, in float32: over `shape`, and the dimensions that the stored form has besides."""
        ...


class _Int8:
    """The integers from -127 to 127. -128 is not used, so that the negative of each number is a number."""

    largest = 127.0

    def kept_shape(self, shape: Shape) -> Shape:
        return shape

    def kept(self, x: Tensor) -> Tensor:
        return mtf.cast(_rounded(x, self.largest), tf.int8)

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        return mtf.cast(kept, tf.float32)


class _Int4:
    """Two neighbours in a byte, low + 16 * high, along the last dimension.

    TensorFlow has no variables of 4 bits. The dimension of the bytes keeps the name of the dimension of the numbers, so
    the rules that split the kernel split the bytes. If the last dimension has an odd size, each number has a byte.
    """

    largest = 7.0

    def kept_shape(self, shape: Shape) -> Shape:
        packed = _packed(shape)
        return shape if packed is None else shape.resize_dimension(packed.name, packed.size // 2)

    def kept(self, x: Tensor) -> Tensor:
        whole, packed = _rounded(x, self.largest), _packed(x.shape)
        if packed is None:
            return mtf.cast(whole, tf.int8)
        pair = Dimension(packed.name + _PAIR, 2)
        factors = mtf.constant(x.mesh, [1.0, 16.0], [pair])
        pairs = mtf.reshape(whole, _in_pairs(x.shape, packed, pair)) * factors
        return mtf.cast(mtf.reduce_sum(pairs, output_shape=self.kept_shape(x.shape)), tf.int8)

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        both, packed = mtf.cast(kept, tf.float32), _packed(shape)
        if packed is None:
            return both
        high = mtf.round(both / 16.0)  # the low number changes the quotient by 7 / 16 at most
        pair = Dimension(packed.name + _PAIR, 2)
        is_low = mtf.equal(mtf.range(kept.mesh, pair), 0)
        whole = kept.shape.resize_dimension(packed.name, packed.size)  # in a pipeline there is also `stage`
        pairs = _in_pairs(whole, packed, pair)
        return mtf.reshape(mtf.where(is_low, both - 16.0 * high, high, output_shape=pairs), whole)


class _Float8:
    largest = LARGEST_FLOAT8

    def kept_shape(self, shape: Shape) -> Shape:
        return shape

    def kept(self, x: Tensor) -> Tensor:
        return float8_bytes(x)

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        return float8_numbers(kept)


NUMBER_FORMATS: dict[str, NumberFormat] = {INT8: _Int8(), INT4: _Int4(), FLOAT8: _Float8()}


def to_numbers(weight: Tensor, quantization: Quantization, summed: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """The numbers of a weight in their stored form, and its scales.

    Args:
      weight: a floating tensor.
      quantization: the format and the groups.
      summed: the names of the dimensions that a layer sums over.
    """
    chosen, groups = NUMBER_FORMATS[quantization.weights], quantization.scale_shape(weight.shape, summed)
    scale = scale_of(weight, groups, chosen.largest)
    return chosen.kept(divided(weight, scale)), scale


def product_values(kept: Tensor, shape: Shape, quantization: Quantization) -> Tensor:
    """The values of a weight as `quantized_einsum` multiplies them: int8, each number in a byte of its own."""
    if quantization.weights != INT4:
        return kept
    return mtf.cast(NUMBER_FORMATS[INT4].read(kept, shape), tf.int8)


def from_numbers(kept: Tensor, scale: Tensor, shape: Shape, quantization: Quantization) -> Tensor:
    """The float32 weight of this shape that stored numbers and scales stand for."""
    return scaled(NUMBER_FORMATS[quantization.weights].read(kept, shape), scale)


def _rounded(x: Tensor, largest: float) -> Tensor:
    return mtf.clip_by_value(mtf.round(x), -largest, largest)


def _packed(shape: Shape) -> Dimension | None:
    # Only the last dimension: a stack of layers adds dimensions in front, and must pack as each of its layers does.
    return shape.dims[-1] if shape.ndims and shape.dims[-1].size % 2 == 0 else None


def _in_pairs(shape: Shape, packed: Dimension, pair: Dimension) -> Shape:
    """The shape with the packed dimension as two: the bytes, under its name, and the two numbers in each byte."""
    half = Dimension(packed.name, packed.size // 2)
    dims = [[half, pair] if d == packed else [d] for d in shape]
    return Shape([d for each in dims for d in each])
