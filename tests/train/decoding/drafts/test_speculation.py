"""Text with a draft, against text without one and against the model's own probabilities."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.initializers import NormalInitializer
from meshtf.layers.transformer import FeedForward, TokenEmbedding, TransformerStack
from meshtf.models import EncoderDecoder, TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding import Prompts, Sampling, Stops, generate
from meshtf.train.decoding.drafts.draft_model import SCOPE, ScopedModel
from meshtf.train.decoding.drafts.speculation import speculate
from meshtf.train.decoding.programs import Sizes
from tests.train.decoding.conftest import SELF, MakeWholePasses

BATCH, LENGTH = mtf.Dimension("batch", 4), mtf.Dimension("length", 9)
LENGTHS, ENDS = np.array([2, 0, 3, 4], np.int32), np.array([9, 8, 9, 4], np.int32)
IDS = np.random.default_rng(3).integers(2, 11, size=(4, 9)).astype(np.int32)
INPUTS = np.array([[2, 3, 1], [4, 1, 0], [1, 0, 0], [3, 4, 1]], np.int32)
TERMS = 3 * (3 * 8 + 4 * 8 + 2 * 9 + 2 * 8 + 6 * FUNCTION_TERMS) + 8 + 11 + 2 * FUNCTION_TERMS
"""Of at most three layers, of attention and a feed-forward layer each, the logits, and their logarithms."""


def table(multiple: int, name: str = "embedding") -> VocabularyEmbedding:
    return VocabularyEmbedding(11, multiple, NormalInitializer(stddev=1.5), name=name)


def with_other_output(stack: TransformerStack) -> TransformerLM:
    """A model whose next token depends much on the ones before it, and is seldom the last one again."""
    return TransformerLM(8, TokenEmbedding(table(4)), stack, output=table(4, "output"))


MODEL = with_other_output(TransformerStack([SELF, FeedForward(8)], 2))
NEARSIGHTED = with_other_output(TransformerStack([dataclasses.replace(SELF, window=1), FeedForward(8)], 2))
OTHER = TransformerLM(4, TokenEmbedding(table(1)), TransformerStack([SELF, FeedForward(4)], 1))
WIDER = TransformerLM(4, TokenEmbedding(table(16)), TransformerStack([FeedForward(4)], 1))
"""A model, the same one that sees no earlier token, and others, whose tables have less padding and more."""


def program_of(model: Any, draft: Any, sampling: Sampling, stops: Stops, num_drafted: int) -> Any:
    """A program with a draft, or an ordinary one if it is None. The nearsighted one has the model's variables."""

    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor, **inputs: mtf.Tensor) -> dict[str, mtf.Tensor]:
        decoder, prompts = model.incremental_decoder(inputs), Prompts(ids, lengths, ends)
        if draft is None:
            return generate(decoder, prompts, sampling, stops, num_likeliest=0).by_name()
        drafting = ScopedModel(draft, SCOPE) if draft in (OTHER, WIDER) else draft
        drafter = drafting.incremental_decoder(inputs)
        return speculate(decoder, drafter, prompts, sampling, stops, num_drafted=num_drafted).by_name()

    return program


def decoded(
    model: Any,
    draft: Any = None,
    layout: str = "",
    mesh: str = "rows:2",
    sampling: Sampling = Sampling(),  # noqa: B008
    stops: Stops = Stops((1,)),  # noqa: B008
    num_drafted: int = 3,
) -> dict[str, np.ndarray]:
    ids = IDS % model.vocabulary.vocab_size
    arrays: dict[str, Any] = {"ids": ([BATCH, LENGTH], ids), "lengths": ([BATCH], LENGTHS), "ends": ([BATCH], ENDS)}
    arrays |= {"inputs": ([BATCH, ("length", 3)], INPUTS)} if isinstance(model, EncoderDecoder) else {}
    return interpret(program_of(model, draft, sampling, stops, num_drafted), arrays, mesh, layout, seed=5).results


def assert_same_text(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        assert_close(found[name], value, terms=TERMS, what=name)


ENDS_OF_TWO = Stops((1,), ((4, 9),))


@pytest.mark.parametrize(
    ("draft", "mesh", "layout", "stops", "num_drafted"),
    [
        (NEARSIGHTED, "rows:2", "heads:rows;vocab:rows", Stops((1,)), 3),
        (NEARSIGHTED, "rows:3", "memory_length:rows", ENDS_OF_TWO, 2),
        pytest.param(NEARSIGHTED, "rows:2;cols:2", "heads:rows;d_ff:cols", Stops(), 12, marks=pytest.mark.long),
        (OTHER, "rows:2;cols:2", "heads:rows;vocab:cols", Stops((1,)), 1),
        pytest.param(WIDER, "rows:2", "vocab:rows", Stops((1,)), 2, marks=pytest.mark.long),
        pytest.param(OTHER, "rows:1", "", ENDS_OF_TWO, 4, marks=pytest.mark.long),
    ],
)
def test_the_likeliest_text_is_that_of_the_model(
    draft: Any, mesh: str, layout: str, stops: Stops, num_drafted: int
) -> None:
    expected = decoded(MODEL, stops=stops, mesh="rows:1")
    found = decoded(MODEL, draft, layout, mesh, stops=stops, num_drafted=num_drafted)
    assert_same_text(found, expected)
    added = found["lengths"] - LENGTHS
    # A step adds one token of the model's own; the last step may end at a drafted one.
    assert np.all(added - found["steps"] <= found["accepted"])
    assert np.all(found["accepted"] <= np.minimum(added, num_drafted * found["steps"]))
    assert draft in (OTHER, WIDER) or 0 < found["accepted"].sum() < num_drafted * found["steps"].sum()


@pytest.mark.long
def test_a_model_accepts_all_that_it_has_drafted_itself() -> None:
    """Also drawn tokens, because p / q is 1."""
    found = decoded(MODEL, MODEL, sampling=Sampling(1.0, top_k=5), stops=Stops(), mesh="rows:1")
    added = ENDS - LENGTHS
    np.testing.assert_array_equal(found["steps"], -(-added // 4))
    np.testing.assert_array_equal(found["accepted"], added - added // 4)


def test_drawn_texts_have_the_probabilities_of_the_model(lm: TransformerLM, whole_passes: MakeWholePasses) -> None:
    """All pairs of tokens behind a prompt, in many rows, with a draft that has other weights."""
    rows, length, sampling = mtf.Dimension("batch", 2048), mtf.Dimension("length", 4), Sampling(6.0)

    def program(ids: mtf.Tensor) -> mtf.Tensor:
        two = mtf.zeros(ids.mesh, [rows], tf.int32) + 2
        draft, prompts = ScopedModel(lm, SCOPE), Prompts(ids, two, two + 2, 2)
        decoders = [each.incremental_decoder({}) for each in (lm, draft)]
        return speculate(*decoders, prompts, sampling, Stops(), num_drafted=1).sequences.ids

    prompt = (2, 3)
    given = {"ids": ([rows, length], np.tile(np.array([*prompt, 0, 0], np.int32), [rows.size, 1]))}
    added = interpret(program, given, "rows:2", "batch:rows").results[:, 2:]
    passes = whole_passes(lm, Sizes(1, length.size))

    def drawn_with(prefix: tuple[int, ...]) -> np.ndarray:
        weights = np.exp(passes.next_token(prefix).astype(np.float64) / sampling.temperature)
        return weights / weights.sum()

    first = drawn_with(prompt)
    expected = rows.size * np.array([p * drawn_with((*prompt, token)) for token, p in enumerate(first)])
    counts = np.zeros_like(expected)
    np.add.at(counts, tuple(added.T), 1)
    assert expected.min() > 5
    # With 24 degrees of freedom, right frequencies exceed this once in 500,000 seeds.
    assert ((counts - expected) ** 2 / expected).sum() < 71


@pytest.mark.long
@pytest.mark.parametrize("layout", ["batch:rows;vocab:cols", "length:cols;d_model:rows"])
def test_a_layout_changes_no_draw(layout: str) -> None:
    sampling = Sampling(1.0, 6, 0.9)
    expected = decoded(MODEL, NEARSIGHTED, sampling=sampling, mesh="rows:1")
    found = decoded(MODEL, NEARSIGHTED, layout, "rows:2;cols:2", sampling)
    for name in ("ids", "lengths", "steps", "accepted"):
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.long
def test_a_draft_behind_an_encoder(encoder_decoder: EncoderDecoder) -> None:
    found = decoded(encoder_decoder, ScopedModel(encoder_decoder, SCOPE), "batch:rows")
    assert_same_text(found, decoded(encoder_decoder, mesh="rows:1"))
