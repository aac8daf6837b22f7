"""Draws random bits that do not change with the layout.

Each value depends only on a key and on its position in the WHOLE tensor. A core therefore draws its slice by itself,
without communication. The bits are the same however the tensor is cut (promise 1 of the design), and in another process
(promise 7).

Two cores that hold one row each of a [2, 3] tensor draw the same bits as one core that holds both:

    both = random_bits(key, begin=[0, 0], slice_shape=[2, 3], whole_shape=[2, 3])
    second = random_bits(key, begin=[1, 0], slice_shape=[1, 3], whole_shape=[2, 3])     # equals both[1:]

All drawing functions take

    key          uint32 [2] tensor, or two Python ints; `fold_in` makes keys
    begin        integers [axes]: where the slice begins in the whole. A tensor of the program, or numbers
    slice_shape  static; the result's shape
    whole_shape  static; the number of axes is the slice's; fewer than 2**63 elements
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.random import distributions
from meshtf.random.compiled_segments import draw
from meshtf.random.distributions import FLOATS, INTEGERS, check_dtype
from meshtf.random.keys import Data, Key, fold_in, key_tensor, stable_hash
from meshtf.random.positions import Begin
from meshtf.random.threefry import threefry_2x32

__all__ = [
    "Begin",
    "Data",
    "Key",
    "fold_in",
    "gumbel",
    "keep_mask",
    "key_tensor",
    "normal",
    "random_bits",
    "stable_hash",
    "threefry_2x32",
    "truncated_normal",
    "uniform",
]


def random_bits(key: Key, begin: Begin, slice_shape: Sequence[int], whole_shape: Sequence[int]) -> tf.Tensor:
    """One word of 32 random bits for each position: uint32 [slice_shape]."""
    return draw(distributions.WORDS, key, begin, (slice_shape, whole_shape), tf.uint32)


def uniform(
    key: Key,
    begin: Begin,
    slice_shape: Sequence[int],
    whole_shape: Sequence[int],
    dtype: tf.DType = tf.float32,
    minval: float = 0.0,
    maxval: float = 1.0,
) -> tf.Tensor:
    """Numbers in [minval, maxval), never maxval: `dtype` [slice_shape].

    Floats are minval + u * (maxval - minval). Steps of u are 2**-11 (f16), 2**-8 (bf16), 2**-24 (f32), 2**-53 (f64).
    Integers (int32, int64) have equal probabilities, to within 2**-64.
    """
    dtype = check_dtype("random uniform", dtype, FLOATS + INTEGERS)
    kind = distributions.UNIFORM_INTEGER if dtype in INTEGERS else distributions.UNIFORM
    bounds = distributions.bounds(minval, maxval, dtype)
    return draw(kind, key, begin, (slice_shape, whole_shape), dtype, bounds)


def normal(
    key: Key,
    begin: Begin,
    slice_shape: Sequence[int],
    whole_shape: Sequence[int],
    dtype: tf.DType = tf.float32,
    mean: float = 0.0,
    stddev: float = 1.0,
) -> tf.Tensor:
    """Normally distributed numbers: `dtype` (f16, bf16, f32, f64) [slice_shape]. Tails reach 6.3 stddev (f64: 9.1)."""
    dtype = check_dtype("random normal", dtype, FLOATS)
    return draw(distributions.NORMAL, key, begin, (slice_shape, whole_shape), dtype, (mean, stddev))


def truncated_normal(
    key: Key,
    begin: Begin,
    slice_shape: Sequence[int],
    whole_shape: Sequence[int],
    dtype: tf.DType = tf.float32,
    mean: float = 0.0,
    stddev: float = 1.0,
) -> tf.Tensor:
    """The normal distribution within 2 stddev of its mean (as TensorFlow defines it): `dtype` [slice_shape].

    `stddev` is the deviation before truncation. The result's own deviation is 0.88 times that.
    """
    dtype = check_dtype("random truncated_normal", dtype, FLOATS)
    return draw(distributions.TRUNCATED_NORMAL, key, begin, (slice_shape, whole_shape), dtype, (mean, stddev))


def gumbel(
    key: Key, begin: Begin, slice_shape: Sequence[int], whole_shape: Sequence[int], dtype: tf.DType = tf.float32
) -> tf.Tensor:
    """Numbers from the Gumbel distribution with location 0 and scale 1: `dtype` (f16, bf16, f32, f64) [slice_shape]."""
    dtype = check_dtype("random gumbel", dtype, FLOATS)
    return draw(distributions.GUMBEL, key, begin, (slice_shape, whole_shape), dtype)


def keep_mask(
    key: Key, begin: Begin, slice_shape: Sequence[int], whole_shape: Sequence[int], keep_prob: float
) -> tf.Tensor:
    """True with probability `keep_prob`, to within 2**-32: bool [slice_shape]. 0 and 1 are exact, and draw nothing."""
    if not 0.0 <= keep_prob <= 1.0:
        raise ValueError(f"random keep_mask: keep_prob {keep_prob} is not a probability; give a number from 0 to 1")
    threshold = round(keep_prob * 2**32)
    if threshold in (0, 2**32):
        return (tf.ones if threshold else tf.zeros)(slice_shape, tf.bool)
    return draw(distributions.KEEP, key, begin, (slice_shape, whole_shape), tf.bool, (threshold - 1,))
