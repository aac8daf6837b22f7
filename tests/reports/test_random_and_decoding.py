"""Reports of other systems about random numbers and about choosing tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import prompt_keys
from meshtf.testing import interpret
from meshtf.train.decoding.sampling import Sampling

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("dtype", [tf.float16, tf.bfloat16, tf.float32])
def test_the_upper_end_of_uniform_numbers_is_never_drawn(dtype: tf.DType) -> None:
    """tensorflow/tensorflow#51465: low + u * (high - low) is rounded up to high, where few numbers lie between."""
    for low, high in ((0.0, 1.0), (100.0, 103.0), (-1.0, -0.875)):
        program = lambda mesh: mtf.random_uniform(mesh, "n:4096", dtype, low, high)  # noqa: B023, E731
        drawn = interpret(program, {}, "rows:2", "n:rows").results.astype(np.float64)
        assert low <= drawn.min()
        assert drawn.max() < high
        assert abs(drawn.mean() - (low + high) / 2) < (high - low) / 8


def test_truncated_normal_numbers_stay_within_two_deviations() -> None:
    """jax-ml/jax#4559: one in millions was minus infinity."""
    program = lambda mesh: mtf.random_truncated_normal(mesh, "n:2000000", mean=3.0, stddev=0.5)  # noqa: E731
    drawn = interpret(program, {}, "rows:1").results
    assert drawn.min() >= 2.0
    assert drawn.max() <= 4.0
    # The variance of a normal distribution that is cut at two deviations is 0.7737 of the whole one's.
    assert abs(drawn.mean() - 3.0) < 5 * 0.44 / math.sqrt(2e6)
    assert abs(drawn.var() / 0.25 - 0.7737) < 0.005


def test_what_has_no_probability_is_never_drawn() -> None:
    """pytorch/pytorch#48841: one draw in a million took an element of weight 0."""
    logits = np.array([-np.inf, 0.0, -np.inf, -80.0, -np.inf], np.float32)
    program = lambda x: mtf.sample_with_temperature(mtf.broadcast(x, "n:200000 c:5"), "c")  # noqa: E731
    drawn = interpret(program, {"x": ("c:5", logits)}, "rows:1").results
    assert set(drawn) == {1}, "e^-80 is drawn once in 10^34, and what has no probability never"


@pytest.mark.parametrize("temperature", [1e-30, 1e-6, 1.0, 1e30])
def test_extreme_temperatures_draw_tokens_that_there_are(temperature: float) -> None:
    """ml-explore/mlx-lm#1912: the strictest setting masked every token, and what was drawn was noise."""
    logits = np.array([3.0, 1.0, -np.inf, 2.0], np.float32)
    vocab = mtf.Dimension("vocab", 4)
    for top_p in (1e-9, 0.5, 1.0):

        def program(x: mtf.Tensor, top_p: float = top_p) -> mtf.Tensor:
            keys = prompt_keys(x.mesh, mtf.Shape("n:500"))
            return Sampling(temperature, top_p=top_p).choose(mtf.broadcast(x, "n:500 vocab:4"), vocab, keys)

        drawn = set(interpret(program, {"x": ("vocab:4", logits)}, "rows:1").results.tolist())
        assert 2 not in drawn
        if top_p < 0.01 or temperature < 1e-3:
            assert drawn == {0}


@pytest.mark.parametrize(
    ("probabilities", "top_p", "kept"),
    [
        ([0.3, 0.1, 0.1, 0.5], 0.8, 2),
        ([0.5, 0.35, 0.1, 0.05], 0.9, 3),
        ([0.25] * 4, 0.75, 3),
        ([0.4, 0.3, 0.2, 0.1], 1e-9, 1),
    ],
)
def test_a_nucleus_is_the_fewest_that_reach_its_share(probabilities: list[float], top_p: float, kept: int) -> None:
    """huggingface/transformers#18976: 0.5 and 0.3 reach 0.8, and a third token was drawn as well."""
    vocab, candidates = mtf.Dimension("vocab", 4), mtf.Dimension("candidates", 4)
    program = lambda x: Sampling(1.0, top_p=top_p).candidates(x, vocab, candidates)[0]  # noqa: E731
    logits = np.log(np.array(probabilities)).astype(np.float32)
    for mesh, layout in (("rows:1", ""), ("rows:2", "vocab:rows")):
        values = interpret(program, {"x": ("vocab:4", logits)}, mesh, layout).results
        assert np.count_nonzero(values > -np.inf) == kept
