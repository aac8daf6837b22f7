"""Choosing a token: against NumPy, over a vocabulary that is split and padded."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import prompt_keys
from meshtf.testing import interpret
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.decoding.step_decoder import token_logits

ROWS, VOCAB, TRUE_SIZE = mtf.Dimension("batch", 4096), mtf.Dimension("vocab", 8), 6
LOGITS = np.array([0.5, -1.0, 2.0, 0.5, -3.0, 1.0, 9.0, 9.0], np.float32)


def drawn(sampling: Sampling, layout: str = "", seed: int = 0) -> np.ndarray:
    """Ids chosen by each row, of logits whose last two stand for no token."""

    def program(logits: mtf.Tensor) -> mtf.Tensor:
        decoder = SimpleNamespace(vocab=VOCAB, output=SimpleNamespace(vocab_size=TRUE_SIZE))
        keys = prompt_keys(logits.mesh, mtf.Shape([ROWS]))
        return sampling.choose(token_logits(logits, decoder), VOCAB, keys)

    inputs = {"logits": ([ROWS, VOCAB], np.tile(LOGITS, [ROWS.size, 1]))}
    return interpret(program, inputs, "rows:2;cols:2", layout, seed=seed).results


def kept(logits: np.ndarray, top_k: int | None, top_p: float, temperature: float) -> set[int]:
    """The ids that may be drawn, written out."""
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))[:top_k]
    weights = np.exp((logits[order] - logits[order[0]]) / temperature)
    before = np.concatenate([[0.0], np.cumsum(weights / weights.sum())[:-1]])
    return {token for token, b in zip(order, before, strict=True) if b < top_p * (1 - 2**-16)}


@pytest.mark.parametrize(
    ("sampling", "layout"),
    [
        (Sampling(1.0), "vocab:cols"),
        (Sampling(0.7, top_k=3), "batch:rows"),
        (Sampling(1.5, top_p=0.9), "vocab:rows+cols"),
        (Sampling(1.0, top_k=4, top_p=0.7), "batch:cols;vocab:rows"),
    ],
)
def test_frequencies_and_support(sampling: Sampling, layout: str) -> None:
    ids = drawn(sampling, layout)
    support = kept(LOGITS[:TRUE_SIZE], sampling.top_k, sampling.top_p, sampling.temperature)
    assert set(ids) == support
    weights = np.exp(LOGITS / sampling.temperature) * [i in support for i in range(VOCAB.size)]
    wanted = weights / weights.sum()
    counts = np.bincount(ids, minlength=VOCAB.size)
    deviations = np.sqrt(ROWS.size * wanted * (1 - wanted))
    assert np.all(np.abs(counts - ROWS.size * wanted) <= 5 * deviations)


def test_a_layout_changes_no_sample_and_a_seed_does() -> None:
    sampling = Sampling(1.0, top_p=0.95)
    expected = drawn(sampling)
    for layout in ("batch:rows", "vocab:cols", "batch:cols;vocab:rows"):
        np.testing.assert_array_equal(drawn(sampling, layout), expected)
    assert np.any(drawn(sampling, seed=1) != expected)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, top_k=1), Sampling(1.0, top_p=1e-6)])
def test_what_leaves_one_token(sampling: Sampling) -> None:
    assert set(drawn(dataclasses.replace(sampling), "vocab:rows")) == {2}


@pytest.mark.parametrize("top_p", [1e-6, 0.3, 0.5, 0.9, 1.0])
def test_nucleus_is_numpys(top_p: float) -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(64, 8)).astype(np.float32)
    logits[:32] = np.round(logits[:32])  # ties
    logits[0] = 0.0
    rows, candidates = mtf.Dimension("batch", 64), mtf.Dimension("candidates", 8)

    def program(logits: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        return Sampling(0.8, top_p=top_p).candidates(logits, VOCAB, candidates)

    values, ids = interpret(program, {"logits": ([rows, VOCAB], logits)}, "rows:2;cols:2", "vocab:rows").results
    for row, value, order in zip(logits, values, ids, strict=True):
        found = [int(i) for i, v in zip(order, value, strict=True) if v > -math.inf]
        assert set(found) == kept(row.astype(np.float64), None, top_p, 0.8)
        assert found == sorted(found, key=lambda i: (-row[i], i)), "of equal logits the lower id comes first"


@pytest.mark.parametrize("layout", ["", "vocab:rows", "vocab:rows+cols", "batch:cols;vocab:rows"])
@pytest.mark.parametrize("size", [8, 60, 3000])
def test_of_equal_logits_a_nucleus_has_its_share(size: int, layout: str) -> None:
    """p of n equal tokens are p * n, rounded up, those of the lowest ids, wherever the last bits of sums fall."""
    rows, vocab = mtf.Dimension("batch", 2), mtf.Dimension("vocab", size)
    everyone = mtf.Dimension("candidates", size)
    logits = np.repeat(np.array([[0.0], [-73.1]], np.float32), size, 1)
    shares = (Fraction(1, 4), Fraction(3, 10), Fraction(1, 2), Fraction(7, 10), Fraction(5, 6), Fraction(9, 10))

    def program(logits: mtf.Tensor) -> list[tuple[mtf.Tensor, mtf.Tensor]]:
        return [Sampling(0.7, top_p=float(p)).candidates(logits, vocab, everyone) for p in shares]

    done = interpret(program, {"logits": ([rows, vocab], logits)}, "rows:2;cols:2", layout).results
    for share, (values, ids) in zip(shares, done, strict=True):
        for value, order in zip(values, ids, strict=True):
            np.testing.assert_array_equal(order[value > -math.inf], np.arange(math.ceil(share * size)), str(share))


def test_a_sum_just_below_top_p_has_not_reached_it() -> None:
    """Beyond rounding there is no latitude: 0.4999 of 0.5 takes one token more."""
    logits = np.log(np.array([[0.5, 0.3, 0.2], [0.4999, 0.3, 0.2001]])).astype(np.float32)
    rows, vocab, candidates = mtf.Dimension("batch", 2), mtf.Dimension("vocab", 3), mtf.Dimension("candidates", 3)
    program = lambda x: Sampling(1.0, top_p=0.5).candidates(x, vocab, candidates)[0]  # noqa: E731
    values = interpret(program, {"x": ([rows, vocab], logits)}, "rows:1").results
    assert (values > -math.inf).sum(1).tolist() == [1, 2]


def test_logits_of_another_type() -> None:
    def program(logits: mtf.Tensor) -> mtf.Tensor:
        decoder = SimpleNamespace(vocab=VOCAB, output=SimpleNamespace(vocab_size=TRUE_SIZE))
        return token_logits(mtf.cast(logits, tf.bfloat16), decoder)

    result = interpret(program, {"logits": ([VOCAB], LOGITS)}, "rows:1").results
    np.testing.assert_array_equal(result, [*LOGITS[:TRUE_SIZE], -np.inf, -np.inf])


@pytest.mark.parametrize(("min_p", "support"), [(0.05, {0, 2, 3, 5}), (0.3, {2}), (1.0, {2})])
def test_improbable_tokens_are_left_out(min_p: float, support: set[int]) -> None:
    """Those that `MinPLogitsWarper` of Transformers 5.24 leaves, at temperature 0.7."""
    for sampling in (Sampling(0.7, min_p=min_p), Sampling(0.7, top_k=5, min_p=min_p)):
        assert set(drawn(sampling, "vocab:cols")) == support
