"""Candidates and their ratings from one cache, against passes over whole texts, on several meshes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.initializers import NormalInitializer
from meshtf.layers.transformer import FeedForward, RelativeBias, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding import Prompts, Sampling
from meshtf.train.decoding.step_decoder import StepDecoder
from meshtf.train.dialog.candidates import RatingForm, rated_candidates

CONFIG = AttentionConfig(2, 4)
MODEL = TransformerLM(
    8,
    TokenEmbedding(VocabularyEmbedding(8, 4, NormalInitializer(stddev=0.7))),
    TransformerStack([SelfAttention(CONFIG), FeedForward(8)], 1, bias=RelativeBias(CONFIG)),
)
FORM = RatingForm([[1, 6], [1, 7]], yes=2, no=3)
"""The stop stands before the word for each attribute, as a newline does."""
STOP, SAMPLES, ADDED = 1, 8, 4
BATCH, LENGTH = mtf.Dimension("batch", 2), mtf.Dimension("length", 10)
IDS = np.array([[2, 3, 4, 0, 0, 0, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0, 0, 0, 0, 0]], np.int32)
LENGTHS = np.array([3, 1], np.int32)
PROMPTS = {"ids": ([BATCH, LENGTH], IDS), "lengths": ([BATCH], LENGTHS), "ends": ([BATCH], LENGTHS + ADDED)}
TERMS = 2 * (3 * 8 + 4 * 8 + 2 * 10 + 2 * 8 + 8 * FUNCTION_TERMS)
"""A layer of attention with a bias and a feed-forward layer, the logits, and their logarithms, of two computations."""


@dataclasses.dataclass
class Counting:
    """A decoder that remembers what is asked of it: positions of a pass, or the rows of a step."""

    decoder: Any
    fills: list[int] = dataclasses.field(default_factory=list)
    steps: list[int] = dataclasses.field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.decoder, name)

    def fill(self, prompts: mtf.Tensor, *args: Any, **options: Any) -> list[mtf.Tensor]:
        self.fills.append(prompts.shape.size)
        return self.decoder.fill(prompts, *args, **options)

    def step(self, tokens: mtf.Tensor, *args: Any) -> tuple[mtf.Tensor, list[mtf.Tensor]]:
        self.steps.append(tokens.shape.size)
        return self.decoder.step(tokens, *args)


def drawn(layout: str = "", counting: Callable[[Any], StepDecoder] = lambda x: x) -> dict[str, np.ndarray]:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        decoder = counting(MODEL.incremental_decoder({}))
        prompts = Prompts(ids, lengths, ends, 3)
        sampling = Sampling(3.0, top_k=7)
        return rated_candidates(decoder, prompts, sampling, STOP, num_samples=SAMPLES, form=FORM).by_name()

    return interpret(program, PROMPTS, "rows:2;cols:2", layout, seed=4).results


def log_probabilities(rows: Sequence[Sequence[int]]) -> np.ndarray:
    """[rows, length, vocab], by one pass over whole sequences."""
    length = mtf.Dimension("length", max(map(len, rows)))
    ids = np.array([[*row, *[0] * (length.size - len(row))] for row in rows], np.int32)

    def program(targets: mtf.Tensor) -> dict[str, mtf.Tensor]:
        logits = mtf.cast(MODEL.logits({"targets": targets}, is_training=False), tf.float32)
        return {"found": mtf.log_softmax(logits, MODEL.vocabulary.vocab)}

    arrays = {"targets": ([mtf.Dimension("batch", len(rows)), length], ids)}
    return interpret(program, arrays, "rows:1;cols:1", "", seed=4).results["found"]


@pytest.fixture(scope="module")
def found() -> dict[str, np.ndarray]:
    return drawn()


def test_ratings_and_likelihoods_are_those_of_whole_passes(found: dict[str, np.ndarray]) -> None:
    """Each candidate, and each question about it, is read anew from its first token, without a cache."""
    texts, ends = [], set()
    for row in range(BATCH.size):
        for sample in range(SAMPLES):
            ids = found["ids"][row, sample, : found["lengths"][row, sample]].tolist()
            ends.add(len(ids) - LENGTHS[row] == ADDED)
            assert ids[: LENGTHS[row]] == IDS[row, : LENGTHS[row]].tolist()
            assert STOP not in ids
            texts += [[*ids, *asked, 0] for asked in FORM.asked]
    assert ends == {True, False}, "some candidates are stopped and some cut, or the test shows little"
    passes = log_probabilities(texts).reshape(BATCH.size, SAMPLES, 2, -1, 8)
    for row in range(BATCH.size):
        for sample in range(SAMPLES):
            begin, end = LENGTHS[row], found["lengths"][row, sample]
            ids = [*found["ids"][row, sample, :end], *([STOP] if end - begin < ADDED else [])]
            own = passes[row, sample, 0]
            likelihood = sum(own[place, ids[place]] for place in range(begin, len(ids)))
            assert_close(found["log_likelihoods"][row, sample], np.float32(likelihood), terms=TERMS * ADDED)
            for attribute in range(2):
                yes, no = (passes[row, sample, attribute, end + 2, token] for token in (FORM.yes, FORM.no))
                rating = np.float32(1 / (1 + np.exp(np.float64(no) - yes)))
                assert_close(found["ratings"][row, sample, attribute], rating, terms=TERMS)


@pytest.mark.parametrize("layout", ["batch:rows;heads:cols;d_ff:cols;vocab:cols", "samples:rows;attributes:cols"])
def test_layouts_draw_and_rate_the_same(found: dict[str, np.ndarray], layout: str) -> None:
    split = drawn(layout)
    for name in ("ids", "lengths", "drawn_steps", "rated_steps"):
        np.testing.assert_array_equal(split[name], found[name])
    for name in ("log_likelihoods", "ratings"):
        assert_close(split[name], found[name], terms=TERMS * ADDED)


def test_the_context_is_read_once(found: dict[str, np.ndarray]) -> None:
    """Of one pass over the prompts, all candidates and ratings live; without it each would read the prompt anew."""
    counted: list[Counting] = []

    def counting(decoder: Any) -> StepDecoder:
        counted.append(Counting(decoder))
        return counted[-1]  # type: ignore[return-value]

    drawn(counting=counting)
    (work,) = counted
    assert work.fills == [BATCH.size * 3], "two prompts, three positions each, and no candidate or attribute"
    assert set(work.steps) == {BATCH.size * SAMPLES, BATCH.size * SAMPLES * 2}
    longest, shortest = found["lengths"].max(), found["lengths"].min()
    # Steps begin behind the shortest prompt, and go on one behind the longest candidate if it was stopped.
    assert longest - LENGTHS.min() <= found["drawn_steps"] <= longest - LENGTHS.min() + 1
    assert found["rated_steps"] == longest - shortest + FORM.num_asked + 1
