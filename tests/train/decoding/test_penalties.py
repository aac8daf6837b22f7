"""Penalties, against numbers of Transformers and against loops over the tokens so far."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret
from meshtf.train.decoding.penalties import Penalties, TokensSoFar

LAYOUTS = ("", "batch:rows;vocab:cols", "vocab:rows;length:cols")
VOCAB_SIZE, STOPS = 6, (5, 0)
RNG = np.random.default_rng(5)
LOGITS = RNG.normal(size=[4, VOCAB_SIZE]).astype(np.float32)
IDS = RNG.integers(0, 3, [4, 9]).astype(np.int32)
PROMPT_LENGTHS, POSITION = np.array([0, 2, 5, 7], np.int32), 7


def penalized(penalties: Penalties, layout: str, start: int | None, position: int = POSITION) -> np.ndarray:
    rows, vocab, length = mtf.Dimension("batch", 4), mtf.Dimension("vocab", VOCAB_SIZE), mtf.Dimension("length", 9)

    def program(logits: mtf.Tensor, ids: mtf.Tensor, lengths: mtf.Tensor) -> mtf.Tensor:
        now = mtf.constant(ids.mesh, position, dtype=ids.dtype)
        return penalties.applied(logits, TokensSoFar.of(ids, now, lengths, start), vocab, STOPS)

    inputs = {"logits": ([rows, vocab], LOGITS), "ids": ([rows, length], IDS), "lengths": ([rows], PROMPT_LENGTHS)}
    return interpret(program, inputs, "rows:2;cols:2", layout).results


def by_loops(penalties: Penalties, start: int | None, position: int = POSITION) -> np.ndarray:
    found = LOGITS.astype(np.float64)
    for row, given in zip(range(4), PROMPT_LENGTHS, strict=True):
        tokens = [*([] if start is None else [start]), *IDS[row, :position].tolist()]
        for token in set(tokens):
            found[row, token] *= 1 / penalties.repetition if found[row, token] > 0 else penalties.repetition
        for token, count in Counter(IDS[row, given:position].tolist()).items():
            found[row, token] -= penalties.presence + count * penalties.frequency
        n = penalties.no_repeat_ngram_size
        for i in range(len(tokens) - n + 1) if n else ():
            if tokens[i : i + n - 1] == tokens[len(tokens) - n + 1 :]:
                found[row, tokens[i + n - 1]] = -math.inf
        if penalties.min_new_tokens and position - given < penalties.min_new_tokens:
            found[row, list(STOPS)] = -math.inf
    return found


@pytest.mark.parametrize(
    ("penalties", "start", "position"),
    [
        (Penalties(repetition=1.6), 4, POSITION),
        (Penalties(presence=0.5, frequency=-0.25), 1, POSITION),
        (Penalties(no_repeat_ngram_size=1), 4, POSITION),
        (Penalties(no_repeat_ngram_size=2), None, POSITION),
        (Penalties(no_repeat_ngram_size=3), 1, POSITION),
        (Penalties(no_repeat_ngram_size=3), 1, 1),  # fewer tokens than n
        (Penalties(no_repeat_ngram_size=2, repetition=2.0, frequency=1.0, min_new_tokens=3), 2, POSITION),
    ],
)
def test_penalties_are_those_of_a_loop_over_the_tokens(penalties: Penalties, start: int | None, position: int) -> None:
    expected = by_loops(penalties, start, position)
    assert (expected != LOGITS).any() or position == 1, "the case says something"
    for layout in LAYOUTS:
        found = penalized(penalties, layout, start, position)
        np.testing.assert_allclose(found, expected, rtol=2**-21, atol=2**-21)


def test_repetition_is_that_of_transformers() -> None:
    """Numbers of Transformers 5.24, `RepetitionPenaltyLogitsProcessor(1.6)`. A token may be there twice, or be none."""
    logits = np.array([[0.5, -1.0, 2.0, 0.5, -3.0, 1.0], [0.1, 0.2, -0.3, 0.4, -0.5, 3.0]], np.float32)
    expected = [[0.5, -1.0, 1.25, 0.5, -4.8, 1.0], [0.0625, 0.125, -0.3, 0.4, -0.5, 1.875]]
    rows, vocab = mtf.Dimension("batch", 2), mtf.Dimension("vocab", 6)
    inputs = {
        "logits": ([rows, vocab], logits),
        "ids": ([rows, mtf.Dimension("length", 3)], np.array([[2, 2, 9], [1, 0, 9]], np.int32)),
        "start": ([rows], np.array([4, 5], np.int32)),
    }

    def program(logits: mtf.Tensor, ids: mtf.Tensor, start: mtf.Tensor) -> mtf.Tensor:
        so_far = TokensSoFar.of(ids, mtf.constant(ids.mesh, 2, dtype=ids.dtype), mtf.zeros_like(start), start)
        return Penalties(repetition=1.6).applied(logits, so_far, vocab, ())

    for layout in LAYOUTS:
        found = interpret(program, inputs, "rows:2;cols:2", layout).results
        np.testing.assert_allclose(found, expected, rtol=2**-22)
