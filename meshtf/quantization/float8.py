"""Floating-point numbers of 8 bits: the bytes in which a program stores them, and their products.

The numbers are E4M3 (Micikevicius et al. 2022): a sign, an exponent e of 4 bits, and a fraction f of 3. The number is
(8 + f) * 2^(e - 10), and f * 2^-9 for e = 0. There is no infinity. If all bits of exponent and fraction are ones, the
byte is NaN. A program stores the bytes as int8, because TensorFlow has few kernels for float8.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.einsum import EinsumOperation
from meshtf.quantization.product_module import FLOAT8_TYPES, PLATFORM, module_text

LARGEST_FLOAT8 = 448.0
"""The greatest magnitude of a number."""

_NAN = 127


def float8_bytes(x: Tensor) -> Tensor:
    """The bytes (int8) of the float8 numbers nearest to x, ties to even. Magnitudes above 448 become 448.

    The bytes are computed with integers, because XLA may leave out the rounding of a conversion to float8 and back.
    """
    size = mtf.minimum(mtf.abs(x), LARGEST_FLOAT8)
    # Comparisons find the exponent of the largest power of 2 in x, because a logarithm is not exact.
    above = [mtf.to_int32(size >= 2.0**power) for power in range(-5, 9)]
    exponent = functools.reduce(mtf.add, above)
    power = mtf.to_float(mtf.left_shift(mtf.ones_like(exponent), exponent)) * 2.0**-9
    steps = mtf.to_int32(mtf.round(size / power))  # a fraction that is rounded up to 16 carries into the exponent
    code = mtf.left_shift(exponent, 3) + steps
    signed = mtf.where(x < 0.0, code - 128, code)
    return mtf.cast(mtf.where(mtf.is_nan(x), _NAN, signed), tf.int8)


def float8_numbers(kept: Tensor) -> Tensor:
    """The float32 numbers that bytes stand for."""
    return EinsumOperation([kept], kept.shape, "float8_numbers", decoder=_Float8Decoder()).outputs[0]


def float8_einsum(x: Tensor, y: Tensor, output_shape: Shape) -> Tensor:
    """The einsum of the numbers that bytes stand for, summed in float32: float32.

    On a GPU that multiplies float8, XLA turns it into one float8 product. Elsewhere each core multiplies the same
    numbers in float32, where a product of two of them is exact. So only the rounding of sums differs.
    """
    return EinsumOperation([x, y], output_shape, "float8_einsum", decoder=_Float8Decoder()).outputs[0]


class _Float8Decoder:
    dtype = tf.float32

    def __call__(self, kept: tf.Tensor) -> tf.Tensor:
        code = tf.bitwise.bitwise_and(tf.cast(kept, tf.int32), 127)
        # The same bits, read as a float32, are 2^-120 times the number. That would also be true of subnormal numbers,
        # but some devices flush them to 0.
        bits = tf.bitcast(tf.bitwise.left_shift(code, 20), tf.float32)
        size = tf.where(code < 8, tf.cast(code, tf.float32) * 2.0**-9, bits * 2.0**120)
        size = tf.where(tf.equal(code, _NAN), math.nan, size)
        return tf.where(kept < 0, -size, size)

    def module(
        self, platform: str, slices: Sequence[tf.TensorSpec], names: Sequence[Sequence[str]], output: Sequence[str]
    ) -> str | None:
        return module_text(FLOAT8_TYPES, slices, names, output) if platform == PLATFORM else None
