"""What the random numbers are like: bounds, distributions, independence. Fixed keys; tolerances in standard errors."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
import tensorflow as tf

from meshtf import random
from meshtf.random import _normal_quantile as normal_quantile
from meshtf.random import distributions
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.house.sharpest import sharpest

SIZE = 200_000
KEY = random.fold_in((0, 7), random.stable_hash("statistics"))
FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
NORMAL = statistics.NormalDist()
ERRORS = 4.5  # standard errors allowed: one test in 150,000 would exceed them by chance


def chi_square_errors(counts: np.ndarray) -> float:
    """How far chi square lies from its mean, in its standard deviations, when all counts should be the same."""
    expected, freedom = counts.sum() / counts.size, counts.size - 1
    return abs(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def largest_gap(drawn: np.ndarray, probabilities: np.ndarray) -> float:
    """Kolmogorov and Smirnov's statistic of sorted numbers, times sqrt(size): 1.95 is passed once in a thousand."""
    ranks = np.arange(drawn.size) / drawn.size
    return math.sqrt(drawn.size) * max(abs(probabilities - ranks).max(), abs(probabilities - ranks - 1 / SIZE).max())


def correlation_errors(a: np.ndarray, b: np.ndarray) -> float:
    return abs(np.corrcoef(a, b)[0, 1]) * math.sqrt(a.size)


@pytest.mark.parametrize("bit", [0, 8, 16, 24])
def test_bytes_are_uniform(bit: int) -> None:
    words = random.random_bits(KEY, [0], [SIZE], [SIZE]).numpy()
    assert chi_square_errors(np.bincount(words >> np.uint32(bit) & np.uint32(255), minlength=256)) < ERRORS


@pytest.mark.parametrize("dtype", sharpest(FLOATS, [tf.bfloat16, tf.float64]))
def test_uniform(dtype: tf.DType) -> None:
    drawn = random.uniform(KEY, [0], [SIZE], [SIZE], dtype).numpy().astype(np.float64)
    spacing = 2.0 ** -distributions.UNIFORM_BITS[dtype]
    assert 0.0 <= drawn.min() <= drawn.max() <= 1.0 - spacing
    assert chi_square_errors(np.histogram(drawn, 128, (0.0, 1.0))[0]) < ERRORS
    assert abs(drawn.mean() - (0.5 - spacing / 2)) < ERRORS * math.sqrt(1 / 12 / SIZE)
    assert np.all(drawn / spacing == np.floor(drawn / spacing))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.05, 0.05), (1.0, 1.5), (-3.0, -0.1), (1000.0, 1016.0)])
def test_uniform_keeps_its_bounds(dtype: tf.DType, low: float, high: float) -> None:
    """At the smallest and the largest words, where rounding could pass them."""
    numbers = tf.constant(distributions.uniform_bounds(low, high, dtype), distributions.computed_in(dtype))
    words = tf.constant([0, 1, 2**31, 2**32 - 2**8, 2**32 - 2, 2**32 - 1], tf.uint32)
    drawn = [float(value) for value in distributions.uniform(words, words, numbers, dtype)]
    assert all(low <= value < high for value in drawn), drawn
    assert drawn == sorted(drawn)
    coarse = (high - low) * 2.0**-7 + abs(high) * 2.0**-7
    assert drawn[0] - low < coarse
    assert high - drawn[-1] < coarse


@pytest.mark.parametrize("dtype", [tf.int32, tf.int64])
def test_uniform_integers(dtype: tf.DType) -> None:
    drawn = random.uniform(KEY, [0], [SIZE], [SIZE], dtype, -3, 10).numpy()
    assert drawn.min() == -3
    assert drawn.max() == 9
    assert chi_square_errors(np.bincount(drawn + 3)) < ERRORS
    full = random.uniform(KEY, [0], [SIZE], [SIZE], dtype, dtype.min, dtype.max + 1).numpy()
    assert chi_square_errors(np.histogram(full / 2.0 ** (8 * dtype.size), 128, (-0.5, 0.5))[0]) < ERRORS


def test_high_product() -> None:
    numbers = [0, 1, 2**32 - 1, 2**32, 2**63 + 12345678901, 2**64 - 1, 0xDEADBEEFCAFEF00D]
    a, b = (each.ravel() for each in np.meshgrid(np.array(numbers, np.uint64), np.array(numbers, np.uint64)))
    product = distributions._high_product(tf.constant(a), tf.constant(b)).numpy()
    assert product.tolist() == [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]


@pytest.mark.parametrize(("dtype", "smallest"), [(tf.float32, 2**-33), (tf.float64, 2**-65)])
def test_quantile(dtype: tf.DType, smallest: float) -> None:
    tails = np.concatenate([np.geomspace(smallest, 0.5, 3000), np.linspace(0.01, 0.5, 3000)])
    tails = tails.astype(dtype.as_numpy_dtype)
    drawn = normal_quantile.upper_quantile(tf.constant(tails)).numpy()
    expected = np.array([-NORMAL.inv_cdf(float(tail)) for tail in tails])
    assert_close(drawn, expected, terms=2 * FUNCTION_TERMS, magnitude=1 + np.abs(expected))
    logarithms = normal_quantile.logarithm(tf.constant(tails)).numpy()
    assert_close(logarithms, np.log(tails.astype(np.float64)), terms=FUNCTION_TERMS, magnitude=np.abs(logarithms))


@pytest.mark.parametrize("dtype", sharpest(FLOATS, [tf.bfloat16, tf.float32]))
def test_normal(dtype: tf.DType) -> None:
    drawn = random.normal(KEY, [0], [SIZE], [SIZE], dtype, 3.0, 2.0).numpy().astype(np.float64)
    z = np.sort((drawn - 3.0) / 2.0)
    assert abs(z.mean()) < ERRORS / math.sqrt(SIZE)
    assert abs(z.var() - 1.0) < ERRORS * math.sqrt(2 / SIZE)
    assert abs((z**3).mean()) < ERRORS * math.sqrt(15 / SIZE)
    assert abs((z**4).mean() - 3.0) < ERRORS * math.sqrt(96 / SIZE)
    if dtype in (tf.float32, tf.float64):
        assert largest_gap(z, np.array([NORMAL.cdf(value) for value in z])) < 1.95


@pytest.mark.parametrize("dtype", sharpest(FLOATS, [tf.float16, tf.float64]))
def test_truncated_normal(dtype: tf.DType) -> None:
    drawn = random.truncated_normal(KEY, [0], [SIZE], [SIZE], dtype, 0.0, 0.02).numpy()
    bound = (2 * tf.constant(0.02, dtype)).numpy()
    assert np.all(np.abs(drawn) <= bound)
    z = np.sort(drawn.astype(np.float64) / 0.02)
    variance = 1 - 4 * NORMAL.pdf(2.0) / (NORMAL.cdf(2.0) - NORMAL.cdf(-2.0))
    assert abs(z.mean()) < ERRORS * math.sqrt(variance / SIZE)
    assert abs(z.var() - variance) < ERRORS * math.sqrt(1.0 / SIZE) + 2.0**-9 * (dtype.size == 2)
    if dtype in (tf.float32, tf.float64):
        below = NORMAL.cdf(-2.0)
        assert largest_gap(z, np.array([(NORMAL.cdf(value) - below) / (1 - 2 * below) for value in z])) < 1.95


def test_largest_numbers_are_finite() -> None:
    """At the words of the farthest tail and of the centre."""
    words = tf.constant([0, 2**31 - 1, 2**31, 2**32 - 1], tf.uint32)
    seconds = tf.constant([0, 2**32 - 1, 0, 2**32 - 1], tf.uint32)
    for dtype, farthest in ((tf.float32, 6.3), (tf.float64, 9.1)):
        drawn = distributions.normal(words, seconds, tf.constant([0, 1], dtype), dtype).numpy()
        assert drawn[0] == -drawn[2]
        assert abs(abs(drawn[0]) - farthest) < 0.2
        assert abs(drawn[1]) < 2.0**-30, "half a step of 2**-32 from the centre, by a slope of 2.5"
        truncated = distributions.truncated_normal(words, seconds, tf.constant([0, 1], dtype), dtype).numpy()
        assert_close(truncated, [2.0, 0.0, -2.0, 0.0], terms=2 * FUNCTION_TERMS, dtype=tf.float32)


@pytest.mark.parametrize("keep_prob", [0.1, 0.5, 0.9])
def test_keep_mask(keep_prob: float) -> None:
    kept = random.keep_mask(KEY, [0], [SIZE], [SIZE], keep_prob).numpy()
    assert abs(kept.mean() - keep_prob) < ERRORS * math.sqrt(keep_prob * (1 - keep_prob) / SIZE)


def test_keep_all_or_nothing() -> None:
    assert random.keep_mask(KEY, [0], [9], [9], 1.0).numpy().all()
    assert not random.keep_mask(KEY, [0], [9], [9], 0.0).numpy().any()
    assert random.keep_mask(KEY, (), (), (), 1.0).numpy()


@pytest.mark.parametrize("lag", [1, 2, 64, 1000, 1024])
def test_neighbours_are_independent(lag: int) -> None:
    drawn = random.normal(KEY, [0], [SIZE], [SIZE]).numpy()
    assert correlation_errors(drawn[:-lag], drawn[lag:]) < ERRORS
    assert correlation_errors(np.abs(drawn[:-lag]), np.abs(drawn[lag:])) < ERRORS


def test_steps_and_names_are_independent() -> None:
    keys = [random.fold_in(KEY, step) for step in range(4)]
    keys += [random.fold_in((0, 7), random.stable_hash(name)) for name in ("layer_0/w", "layer_1/w", "layer_0/b")]
    drawn = [random.random_bits(key, [0], [SIZE], [SIZE]).numpy() for key in keys]
    for number, first in enumerate(drawn):
        for second in drawn[number + 1 :]:
            assert correlation_errors(first, second) < ERRORS
            differing = np.bitwise_count(first ^ second) if hasattr(np, "bitwise_count") else None
            assert differing is None or abs(differing.mean() - 16) < ERRORS * math.sqrt(8 / SIZE)
