"""Reports of other systems about attention at its edges, and about tokens that are chosen at the edges of options."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionMask, AttentionPattern, Tokens
from meshtf.layers.attention.dot_product import dot_product_attention
from meshtf.layers.attention.lean import lean_attention
from meshtf.layers.attention.local import local_attention
from meshtf.layers.attention.ring import ring_attention
from meshtf.ops.random.row_keys import prompt_keys
from meshtf.testing import interpret
from meshtf.train.decoding import GnmtRules, Prompts, beam_search
from meshtf.train.decoding.sampling import Sampling

pytestmark = pytest.mark.quick

LENGTH, VOCAB = mtf.Dimension("length", 4), mtf.Dimension("vocab", 8)


@pytest.mark.parametrize("is_bidirectional", [True, False])
def test_all_that_is_far_away_is_in_the_last_bucket(is_bidirectional: bool) -> None:
    """lucidrains/x-transformers#11, huggingface/candle#899: distances beyond the greatest, and those behind a cache;
    tensorflow/tensorflow#57514, numpy/numpy#14984: the size of the lowest integer is negative."""
    ahead = np.array([-(2**31), -200, -128, -127, -1, 0, 1, 127, 128, 2**31 - 1], np.int32)
    program = lambda x: mtf.layers.relative_position_bucket(x, 32, 128, is_bidirectional=is_bidirectional)  # noqa: E731
    buckets = {True: [15, 15, 15, 15, 1, 0, 17, 31, 31, 31], False: [31, 31, 31, 31, 1, 0, 0, 0, 0, 0]}
    for mesh, layout in (("rows:1", ""), ("rows:5", "n:rows")):
        found = interpret(program, {"x": ("n:10", ahead)}, mesh, layout).results
        np.testing.assert_array_equal(found, buckets[is_bidirectional])


def test_the_lowest_position_is_far_away() -> None:
    """tensorflow/tensorflow#57514 again: a bias by distance would have been a bonus."""
    config = mtf.layers.AttentionConfig(num_heads=1, d_kv=4)

    def program(x: mtf.Tensor) -> mtf.Tensor:
        bias = mtf.layers.LinearBias.make(x.mesh, config)
        return bias(mtf.zeros(x.mesh, "length:1", tf.int32), x)

    found = interpret(program, {"x": ("memory_length:2", np.array([-(2**31), 2], np.int32))}, "rows:2").results
    far, near = found.ravel()
    assert far == 2**30 * near < 0


Attend = Callable[..., mtf.Tensor]
ALGORITHMS: dict[str, Attend] = {
    "plain": lambda q, k, v, pattern: dot_product_attention(q, _memory(k), _memory(v), pattern),
    "lean": lambda q, k, v, pattern: lean_attention(q, _memory(k), _memory(v), pattern, block_size=2),
    "local": local_attention,
    "ring": lambda q, k, v, pattern: ring_attention(q, k, v, pattern, num_blocks=2),
}
SEGMENTS = np.array([[1, 1, 2, 2, 2, 0], [0, 0, 0, 0, 0, 0]], np.int32)
POSITIONS = np.array([[0, 1, 0, 1, 2, 0], [0, 0, 0, 0, 0, 0]], np.int32)


def _memory(x: mtf.Tensor) -> mtf.Tensor:
    return mtf.rename_dimension(x, "length", "memory_length")


def attended_in_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, is_causal: bool) -> np.ndarray:
    """[batch, length, d_kv] within segments and a window of two positions; 0 where nothing is seen."""
    y = np.zeros_like(q)
    for b, row in enumerate(SEGMENTS):
        for i, segment in enumerate(row):
            near = [j for j in (i - 1, i, i + 1) if 0 <= j < 6 and row[j] == segment != 0 and (j <= i or not is_causal)]
            if near:
                weights = np.exp(k[b, near] @ q[b, i])
                y[b, i] = weights @ v[b, near] / weights.sum()
    return y


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("is_causal", [True, False])
def test_a_window_over_packed_rows_sees_no_other_text_and_padding_has_no_nan(algorithm: str, is_causal: bool) -> None:
    """AI-Hypercomputer/maxtext#5001, pytorch/pytorch#41508: windows counted in the row and not in the text; and a row
    that sees nothing was NaN, as were then all gradients."""
    mask = AttentionMask(is_causal, window=2)

    def program(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, segments: mtf.Tensor, at: mtf.Tensor) -> list[mtf.Tensor]:
        pattern = AttentionPattern.within(Tokens(positions=at, segments=segments), mask)
        y = ALGORITHMS[algorithm](q, k, v, pattern)
        return [y, *mtf.gradients(mtf.reduce_sum(mtf.square(y)), [q, k, v])]

    rng, tokens = np.random.default_rng(0), "batch:2 length:6"
    q, k, v = rng.normal(size=(3, 2, 6, 4))
    arrays = {name: (f"{tokens} d_kv:4", x) for name, x in (("q", q), ("k", k), ("v", v))}
    inputs = {**arrays, "segments": (tokens, SEGMENTS), "at": (tokens, POSITIONS)}
    for mesh, layout in (("rows:1", ""), ("rows:2", "length:rows"), ("rows:2", "batch:rows")):
        y, *grads = interpret(program, inputs, mesh, layout).results
        np.testing.assert_allclose(y, attended_in_numpy(q, k, v, is_causal=is_causal), atol=1e-13)
        for grad in grads:
            assert np.isfinite(grad).all()
            np.testing.assert_array_equal(grad[SEGMENTS == 0], 0)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(0.0),
        Sampling(0.0, top_k=3),
        Sampling(0.0, top_p=0.5),
        Sampling(1.0, top_k=1),
        Sampling(1.0, top_p=0.0),
        Sampling(1e-45, top_k=99, top_p=0.9),
    ],
)
@pytest.mark.parametrize("layout", ["", "vocab:rows"])
def test_what_leaves_one_token_takes_the_first_of_the_largest(sampling: Sampling, layout: str) -> None:
    """google-deepmind/gemma#562, OpenNMT/CTranslate2#1511: logits divided by a temperature of 0."""
    logits = np.array([[1, 3, 3, -np.inf, 2], [-np.inf] * 4 + [0], [0] * 5], np.float32)
    vocab = mtf.Dimension("vocab", 5)
    if sampling.temperature == 1e-45:  # at which equal logits are drawn from
        logits[0, 2] = 2.5
        logits = logits[:2]
    inputs = {"x": (f"n:{len(logits)} vocab:5", logits)}
    chosen = interpret(
        lambda x: sampling.choose(x, vocab, prompt_keys(x.mesh, x.shape - [vocab])),
        inputs,
        "rows:2",
        layout,
        max_padding=0.9,
    ).results
    np.testing.assert_array_equal(chosen, [1, 4, 0][: len(logits)])


class Table:
    """A decoder that knows the place alone: logits [length, token] of five tokens, padded with likely ones to eight."""

    output = type("Output", (), {"vocab_size": 5})
    vocab = VOCAB

    def __init__(self, probabilities: list[list[float]]) -> None:
        table = np.log(np.maximum(np.array(probabilities), 1e-30)).astype(np.float32)
        self.table = np.pad(table, [(0, 0), (0, 3)], constant_values=100.0)

    def incremental_decoder(self, features: object) -> Table:
        return self

    def fill(self, prompts: mtf.Tensor, prompt_lengths: mtf.Tensor, max_length: int | None = None) -> list[mtf.Tensor]:
        return []

    def step(self, tokens: mtf.Tensor, position: mtf.Tensor, *rest: Any) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        logits = mtf.gather(mtf.constant(tokens.mesh, self.table, [LENGTH, VOCAB]), position, LENGTH)
        return mtf.broadcast(logits, tokens.shape + VOCAB), []


def found_by(decoder: Table, batch: int, beam_size: int, alpha: float) -> dict[str, np.ndarray]:
    """Hypotheses that end with 1, or after four tokens."""
    rows = mtf.Dimension("batch", batch)

    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        prompts: Any = Prompts(ids, lengths, ends)
        found = beam_search(decoder, prompts, (1,), beam_size=beam_size, rules=GnmtRules(alpha))  # type: ignore[arg-type]
        return dict(found.by_name())

    inputs = {
        "ids": ([rows, LENGTH], np.zeros([batch, 4], np.int32)),
        "lengths": ([rows], np.zeros(batch, np.int32)),
        "ends": ([rows], np.full(batch, 4, np.int32)),
    }
    return interpret(program, inputs, "rows:2", "vocab:rows").results


@pytest.mark.parametrize("batch", [1, 3])
def test_an_end_at_the_first_step_is_found_once_and_ranked_by_its_length(batch: int) -> None:
    """OpenNMT/CTranslate2#290, OpenNMT/OpenNMT-tf#456, huggingface/transformers#23127, joeynmt/joeynmt#149: ends of
    beams that do not count yet; one length for all; a length that grew with the batch; an end as soon as the best one
    ended."""
    first, other = [0.0, 0.5, 0.3, 0.2, 0.0], [0.0, 0.1, 0.9, 0.0, 0.0]
    decoder = Table([first, other, other, other])

    def score(alpha: float, *probabilities: float) -> float:
        return math.log(math.prod(probabilities)) / ((5 + len(probabilities)) / 6) ** alpha

    for alpha in (0.0, 3.0):
        found = found_by(decoder, batch, 3, alpha)
        of_four = [score(alpha, p, 0.9, 0.9, 0.9) for p in (0.3, 0.2)]
        wanted = sorted([(score(alpha, 0.5), 1), *((s, 4) for s in of_four)], reverse=True)
        assert wanted[0][1] == (1 if alpha == 0.0 else 4), "a long one is best only by the penalty"
        for scores, lengths, ids in zip(found["scores"], found["lengths"], found["ids"], strict=True):
            np.testing.assert_allclose(scores, [s for s, _ in wanted], rtol=1e-5)
            assert lengths.tolist() == [length for _, length in wanted]
            assert ids.max() < 5, "padding of the vocabulary is no token"
            assert len({tuple(row[:n]) for row, n in zip(ids, lengths, strict=True)}) == 3
