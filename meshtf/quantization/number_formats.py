"""The numbers of a quantized kernel: how they are made from floats, kept, and read again."""

from __future__ import annotations

import functools
from typing import Protocol

import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import Dimension, Shape
from meshtf.graph.tensor import Tensor
from meshtf.quantization.quantization import FLOAT8, INT4, INT8, Quantization
from meshtf.quantization.quantized_tensor import in_groups, scale_of, scaled

_PAIR = "_pair"


class NumberFormat(Protocol):
    """One form of numbers.

    Attributes:
      largest: the greatest magnitude. The largest weight of a group becomes this number.
    """

    largest: float

    def kept_shape(self, shape: Shape) -> Shape:
        """The shape in which numbers of this shape are kept."""
        ...

    def kept(self, x: Tensor) -> Tensor:
        """The form to keep of float32 numbers, which are at most `largest`: rounded to the nearest number."""
        ...

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        """The numbers, in float32."""
        ...


class _Int8:
    largest = 127.0

    def kept_shape(self, shape: Shape) -> Shape:
        return shape

    def kept(self, x: Tensor) -> Tensor:
        return mtf.cast(_rounded(x, self.largest), tf.int8)

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        return mtf.cast(kept, tf.float32)


class _Int4:
    """Two neighbours in a byte, low + 16 * high, along the last dimension.

    TensorFlow has no variables of 4 bits. A byte has the name of the dimension of its numbers, so that the rules that
    split the kernel split the bytes. If the last dimension is of odd size, each number has a byte.
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
        high = mtf.round(both / 16.0)  # the low one moves it by 7 / 16 at most
        pair = Dimension(packed.name + _PAIR, 2)
        is_low = mtf.equal(mtf.range(kept.mesh, pair), 0)
        pairs = _in_pairs(shape, packed, pair)
        return mtf.reshape(mtf.where(is_low, both - 16.0 * high, high, output_shape=pairs), shape)


class _Float8:
    """The byte of an E4M3 number: a sign, an exponent e of 4 bits, and a fraction f of 3 (Micikevicius et al. 2022).

    The number is (8 + f) * 2^(e - 10), and f * 2^-9 for e = 0. Bytes are made and read with integers: TensorFlow has no
    kernels that slice float8 on CPUs. The two bytes of NaN, whose exponent and fraction are all ones, are not made.
    """

    largest = 448.0

    def kept_shape(self, shape: Shape) -> Shape:
        return shape

    def kept(self, x: Tensor) -> Tensor:
        size = mtf.minimum(mtf.abs(x), self.largest)
        # Comparisons, because a logarithm is not exact. The exponent is that of the number's power of 2.
        above = [mtf.to_int32(size >= 2.0**power) for power in range(-5, 9)]
        exponent = functools.reduce(mtf.add, above)
        steps = mtf.to_int32(mtf.round(size / _power_of_2(exponent, -9)))  # a fraction that is rounded up to 16 carries
        code = mtf.left_shift(exponent, 3) + steps
        return mtf.cast(mtf.where(x < 0.0, code - 128, code), tf.int8)

    def read(self, kept: Tensor, shape: Shape) -> Tensor:
        code = mtf.bitwise_and(mtf.to_int32(kept), 127)
        exponent = mtf.right_shift(code, 3)
        fraction = mtf.bitwise_and(code, 7) + 8 * mtf.to_int32(exponent > 0)
        size = mtf.to_float(fraction) * _power_of_2(mtf.maximum(exponent, 1), -10)
        return mtf.where(kept < 0, -size, size)


NUMBER_FORMATS: dict[str, NumberFormat] = {INT8: _Int8(), INT4: _Int4(), FLOAT8: _Float8()}


def to_numbers(weight: Tensor, quantization: Quantization, summed: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """The numbers of a weight in the form in which they are kept, and its scales.

    Args:
      weight: a floating tensor.
      quantization: the format and the groups.
      summed: the names of the dimensions that a layer sums over.
    """
    chosen, groups = NUMBER_FORMATS[quantization.weights], quantization.scale_shape(weight.shape, summed)
    scale = scale_of(weight, groups, chosen.largest)
    wide = mtf.reshape(mtf.cast(weight, tf.float32), in_groups(weight.shape, groups))
    return chosen.kept(mtf.reshape(wide / scale, weight.shape)), scale


def integers(kept: Tensor, shape: Shape, quantization: Quantization) -> Tensor:
    """The numbers of a format of integers, as int8."""
    chosen = NUMBER_FORMATS[quantization.weights]
    return kept if quantization.weights == INT8 else mtf.cast(chosen.read(kept, shape), tf.int8)


def from_numbers(kept: Tensor, scale: Tensor, shape: Shape, quantization: Quantization) -> Tensor:
    """The weight of this shape that kept numbers and scales stand for: float32."""
    return scaled(NUMBER_FORMATS[quantization.weights].read(kept, shape), scale)


def _power_of_2(exponent: Tensor, more: int) -> Tensor:
    """2^(exponent + more), which is exact for exponents from 0 to 30."""
    return mtf.to_float(mtf.left_shift(mtf.ones_like(exponent), exponent)) * 2.0**more


def _rounded(x: Tensor, largest: float) -> Tensor:
    return mtf.clip_by_value(mtf.round(x), -largest, largest)


def _packed(shape: Shape) -> Dimension | None:
    # Only the last one: a stack of layers adds dimensions in front, and must pack as each of its layers does.
    return shape.dims[-1] if shape.ndims and shape.dims[-1].size % 2 == 0 else None


def _in_pairs(shape: Shape, packed: Dimension, pair: Dimension) -> Shape:
    """The shape with the bytes, by the name of the packed dimension, and the two numbers in each as dimensions."""
    half = Dimension(packed.name, packed.size // 2)
    dims = [[half, pair] if d == packed else [d] for d in shape]
    return Shape([d for each in dims for d in each])
