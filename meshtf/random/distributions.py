"""Turns the two words of a position into a value of a distribution. All work is elementwise, inside a compiled segment.

Each function takes the words (uint32, any one shape), the distribution's numbers and the dtype of the result. The
numbers are a vector argument, so that programs with other numbers share a compiled segment. f16 and bf16 are computed
in f32.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from meshtf.errors import DtypeError
from meshtf.random._normal_quantile import logarithm, upper_quantile

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.int32, tf.int64)
# Bits of a uniform number in [0, 1): as many as the significand has. The dtype then holds every multiple of 2**-bits
# below 1 exactly. No number is rounded, so none is rounded up to 1.
UNIFORM_BITS = {tf.float16: 11, tf.bfloat16: 8, tf.float32: 24, tf.float64: 53}
_SMALL = {tf.float32: 2.0**-5, tf.float64: 2.0**-7}  # below this v, the series of `gumbel` is exact to rounding
TAIL_BEYOND_2 = 0.022750131948179195  # P(Z > 2)


def computed_in(dtype: tf.DType) -> tf.DType:
    """The dtype in which a distribution is computed: f64 for f64, f32 for smaller floats, uint64 for integers.

    The distribution's numbers have the same dtype.
    """
    if dtype in INTEGERS:
        return tf.uint64
    return tf.float64 if dtype == tf.float64 else tf.float32


def bounds(minval: float, maxval: float, dtype: tf.DType) -> tuple[float, ...]:
    """The numbers of the uniform distribution in [minval, maxval).

    Raises:
      ValueError: there are no such numbers in the dtype.
    """
    if dtype not in INTEGERS:
        return uniform_bounds(minval, maxval, dtype)
    if minval != int(minval) or maxval != int(maxval):
        raise ValueError(f"random uniform: [{minval}, {maxval}) for {dtype.name}; give bounds that are integers")
    return integer_bounds(int(minval), int(maxval), dtype)


def uniform_bounds(minval: float, maxval: float, dtype: tf.DType) -> tuple[float, float, float]:
    """(low, maxval - low, high): low and high are the smallest and the largest of the dtype in [minval, maxval)."""
    as_dtype = dtype.as_numpy_dtype
    with np.errstate(over="ignore"):
        low, high = as_dtype(minval), as_dtype(maxval)
    if float(low) < minval:
        low = np.nextafter(low, as_dtype(math.inf))
    if float(high) >= maxval:
        high = np.nextafter(high, as_dtype(-math.inf))
    width = maxval - float(low)
    if not (math.isfinite(minval) and math.isfinite(maxval) and low <= high):
        raise ValueError(f"random uniform: no {dtype.name} lies in [{minval}, {maxval}); minval must be below maxval")
    # All values beyond the dtype's largest number would become that number.
    if max(-minval, maxval) > float(dtype.max) or width > float(computed_in(dtype).max):
        raise ValueError(f"random uniform: a bound or the width of [{minval}, {maxval}) is beyond {dtype.name}")
    return float(low), width, float(high)


def integer_bounds(minval: int, maxval: int, dtype: tf.DType) -> tuple[int, int]:
    """(minval in two's complement of 64 bits, maxval - minval), both below 2**64."""
    if not dtype.min <= minval < maxval <= dtype.max + 1:
        raise ValueError(f"random uniform: [{minval}, {maxval}) is empty or not within {dtype.name}")
    return minval % 2**64, min(maxval - minval, 2**64 - 1)


def words(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The first word itself: uint32."""
    del word1, numbers, dtype
    return word0


def keep(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """bool: whether the first word is at most numbers[0] (uint32)."""
    del word1, dtype
    return word0 <= numbers[0]


def uniform(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The values of the uniform distribution; `numbers` are those of `uniform_bounds`, f32 or f64 [3].

    A result that rounds up to the upper bound is lowered to `high`.
    """
    low, width, high = tf.unstack(numbers)
    return tf.cast(tf.minimum(low + _unit(word0, word1, dtype) * width, high), dtype)


def uniform_integer(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The values of the uniform distribution of integers; `numbers` are those of `integer_bounds`, uint64 [2].

    A value is minval + the high half of (64 random bits * range), as in Lemire (2019), but without rejection. Each
    value's probability has an error of at most 2**-64, or range / 2**64 in relative terms. For a range of 6, a die, the
    2**64 words fall into six intervals whose sizes differ by at most one word.
    """
    minval, width = tf.unstack(numbers)
    bits = tf.bitwise.bitwise_or(tf.bitwise.left_shift(_wide(word0), _u64(32)), _wide(word1))
    return tf.cast(minval + _high_product(bits, width), dtype)


def normal(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The values of the normal distribution, by the quantile; `numbers` are (mean, stddev).

    The smallest tail drawn is 2**-33 (f32; 6.3 stddev) or 2**-65 (f64; 9.1 stddev).
    """
    return _signed(word0, upper_quantile(0.5 * _half_open(word0, word1, numbers.dtype)), numbers, dtype)


def truncated_normal(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The values of the normal distribution within 2 stddev of its mean, by the quantile; `numbers` are (mean, stddev).

    The tail is drawn uniformly between P(Z > 2) and 1/2, so no value needs to be rejected.
    """
    tail = TAIL_BEYOND_2 + (0.5 - TAIL_BEYOND_2) * _half_open(word0, word1, numbers.dtype)
    return _signed(word0, tf.minimum(upper_quantile(tail), 2.0), numbers, dtype)


def gumbel(word0: tf.Tensor, word1: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """-log(-log u) of a uniform u in (0, 1). Large values, which decide a sample, have as many digits as the others.

    Large values come from u near 1, where a float has few digits left. The function therefore draws v = 1 - u, which is
    at least 2**-32 (f32) or 2**-64 (f64). Then -log u = -log(1 - v) = 2 atanh(v / (2 - v)), a series if v is small.
    """
    v = tf.minimum(_half_open(word0, word1, numbers.dtype), 1.0 - 2.0 ** -(24 if numbers.dtype == tf.float32 else 53))
    s = v / (2.0 - v)
    square = s * s
    near = 2.0 * s * (1.0 + square * (1 / 3 + square * (1 / 5 + square * (1 / 7))))
    far = -logarithm(1.0 - v)
    return tf.cast(-logarithm(tf.where(v < _SMALL[numbers.dtype], near, far)), dtype)


@dataclasses.dataclass(frozen=True)
class Distribution:
    """A distribution's function, how many numbers it takes, and their dtype (None: the dtype of `computed_in`)."""

    values: Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.DType], tf.Tensor]
    numbers: int
    numbers_dtype: tf.DType | None = None


WORDS = Distribution(words, 0, tf.uint32)
KEEP = Distribution(keep, 1, tf.uint32)
UNIFORM = Distribution(uniform, 3)
UNIFORM_INTEGER = Distribution(uniform_integer, 2)
NORMAL = Distribution(normal, 2)
TRUNCATED_NORMAL = Distribution(truncated_normal, 2)
GUMBEL = Distribution(gumbel, 0)


def check_dtype(who: str, dtype: tf.DType, allowed: tuple[tf.DType, ...]) -> tf.DType:
    """The dtype as a tf.DType.

    Raises:
      DtypeError: the dtype is not allowed. The message lists the allowed ones.
    """
    dtype = tf.as_dtype(dtype)
    if dtype not in allowed:
        raise DtypeError(f"{who}: dtype {dtype.name}; use one of {', '.join(each.name for each in allowed)}")
    return dtype


def _unit(word0: tf.Tensor, word1: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Numbers in [0, 1): multiples of 2**-UNIFORM_BITS, from the first word and, for f64, 21 bits of the second."""
    if dtype == tf.float64:
        return _float(word0, dtype) * 2.0**-32 + _float(_shift_right(word1, 11), dtype) * 2.0**-53
    bits = UNIFORM_BITS[dtype]
    return _float(_shift_right(word0, 32 - bits), tf.float32) * 2.0**-bits


def _half_open(word0: tf.Tensor, word1: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Numbers in (0, 1], from 31 bits of the first word and, for f64, all of the second.

    The remaining bit of the first word is the sign.
    """
    magnitude = _float(tf.bitwise.bitwise_and(word0, tf.constant(2**31 - 1, tf.uint32)), dtype)
    if dtype == tf.float64:
        return magnitude * 2.0**-31 + (_float(word1, dtype) + 0.5) * 2.0**-63
    return (magnitude + 0.5) * 2.0**-31


def _signed(word0: tf.Tensor, z: tf.Tensor, numbers: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    mean, stddev = tf.unstack(numbers)
    negative = word0 >= tf.constant(2**31, tf.uint32)
    return tf.cast(mean + stddev * tf.where(negative, -z, z), dtype)


def _float(word: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """A word as f64, or a word below 2**31 as f32: through int32, whose conversion is one instruction everywhere."""
    if dtype == tf.float64:
        return tf.cast(_wide(word), dtype)
    return tf.cast(tf.bitcast(word, tf.int32), dtype)


def _shift_right(word: tf.Tensor, count: int) -> tf.Tensor:
    return tf.bitwise.right_shift(word, tf.constant(count, word.dtype))


def _u64(value: int) -> tf.Tensor:
    return tf.constant(value, tf.uint64)


def _wide(word: tf.Tensor) -> tf.Tensor:
    return tf.cast(word, tf.uint64)


def _high_product(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """The high 64 bits of the 128-bit product of uint64 numbers, from products of their halves."""
    a_low, b_low = tf.bitwise.bitwise_and(a, _u64(2**32 - 1)), tf.bitwise.bitwise_and(b, _u64(2**32 - 1))
    a_high, b_high = _shift_right(a, 32), _shift_right(b, 32)
    middle = a_high * b_low + _shift_right(a_low * b_low, 32)
    other = a_low * b_high + tf.bitwise.bitwise_and(middle, _u64(2**32 - 1))
    return a_high * b_high + _shift_right(middle, 32) + _shift_right(other, 32)
