"""Texts in, texts and scores out: batches, limits, and what is said of text that does not fit."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.initializers import NormalInitializer
from meshtf.models import EncoderDecoder, MLPClassifier, TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close
from meshtf.train import Training
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, LanguageModel, Pad, TextFiles, TextPairs, TextTask
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.programs import Sizes
from meshtf.train.decoding.prompt_text import PromptText
from meshtf.train.decoding.results import TextScore
from meshtf.train.decoding.text_decoder import ContinuedTexts, ScoredTexts
from meshtf.train.trainer import mesh_of

VOCABULARY = ByteVocabulary()
LENGTH, INPUTS_LENGTH = 12, 8
TERMS = 4 * (3 * 16 + 4 * (16 + 8 + LENGTH) + 64 + 8 * FUNCTION_TERMS) + 300
"""Roundings of a small model of at most four layers, and of the logits of as many tokens as there are bytes."""


def with_bytes(model: TransformerLM | EncoderDecoder) -> Any:
    table = VocabularyEmbedding(VOCABULARY.size, 2, NormalInitializer(stddev=0.7))
    return dataclasses.replace(model, embedding=dataclasses.replace(model.embedding, vocabulary=table))


def training_of(model: Any, mesh_shape: str) -> Training:
    is_pair = isinstance(model, EncoderDecoder)
    task = TextTask(
        TextFiles("nowhere/*.txt"),
        VOCABULARY,
        TextPairs() if is_pair else LanguageModel(),
        {"inputs": INPUTS_LENGTH, "targets": LENGTH} if is_pair else LENGTH,
        arrangement=Pad(),
    )
    optimizer = mtf.optimize.SgdOptimizer(0.1)
    return Training(model, task, optimizer, mesh_shape, "batch:rows", batch_size=4, num_steps=1)


@pytest.fixture(scope="module")
def lm_training(lm: TransformerLM) -> Training:
    return training_of(with_bytes(lm), "rows:2")


@pytest.fixture(scope="module")
def pair_training(encoder_decoder: EncoderDecoder) -> Training:
    return training_of(with_bytes(encoder_decoder), "rows:1")


def texts(*lines: str) -> list[PromptText]:
    return [PromptText(line, f"prompt {number}") for number, line in enumerate(lines, 1)]


def continued(training: Training, prompts: Sequence[PromptText], **options: Any) -> ContinuedTexts:
    return ContinuedTexts(training, mesh_of(training), Decoding(**options), prompts)


def scored(training: Training, prompts: Sequence[PromptText], **options: Any) -> ScoredTexts:
    return ScoredTexts(training, mesh_of(training), Decoding(**options), prompts)


def test_a_model_of_nan_still_has_results(lm_training: Training) -> None:
    """A prompt that vanished from the output would be taken for one that was never given."""
    work = continued(lm_training, texts("a", "b"), max_new_tokens=2)
    work.program.initialize()
    variables = work.program.variables
    name = next(name for name in variables if name.endswith("scale"))
    variables[name] = np.full_like(variables[name], np.nan)
    for prompt, (found,) in zip("ab", work, strict=True):
        assert (found.prompt, len(found.ids)) == (prompt, 2)
        assert math.isnan(found.score)


def test_a_batch_changes_no_continuation(lm_training: Training) -> None:
    """Nor does a stop, which cuts it however it is spelt: one of two bytes, one of them in the middle of a character.
    Ranks are those of what is left.
    """
    prompts, options = texts("ab", "", "héllo", "abcdefghijk", "x"), {"max_new_tokens": 6, "logprobs": 2}
    together = [found for (found,) in continued(lm_training, prompts, batch_size=6, **options)]
    assert [len(free.ids) for free in together] == [6, 6, 6, 1, 6]
    assert [free.prompt for free in together] == [p.text for p in prompts]
    stop = VOCABULARY.decode(together[0].ids)[1:3]
    apart = continued(lm_training, prompts, batch_size=2, stop_texts=[stop, "never"], **options)
    for (found,), free in zip(apart, together, strict=True):
        same = free.tokens[: len(found.ids)]
        assert [t.id for t in found.tokens] == [t.id for t in same]
        assert found.is_stopped == (stop in VOCABULARY.decode(free.ids))
        assert found.text == (free.text[: free.text.find(stop)] if found.is_stopped else free.text)
        assert (stop in VOCABULARY.decode(found.ids)) == found.is_stopped
        assert stop not in VOCABULARY.decode(found.ids[:-1])
        likelihoods = [token.log_likelihood for token in found.tokens]
        assert_close(likelihoods, [token.log_likelihood for token in same], terms=TERMS, dtype="float32")
        summed_in = (
            "float64" if found.is_stopped else "float32"
        )  # on the host once a stop has cut it, else by the model
        assert_close(found.log_likelihood, sum(likelihoods), terms=len(likelihoods), dtype=summed_in)
        assert [t.id for t in found.tokens] == found.ids == [t.likeliest[0].id for t in found.tokens]  # greedy
        assert found.as_json()["tokens"][0]["likeliest"][1]["log_likelihood"] < likelihoods[0]
    first = together[0]
    assert first.text == VOCABULARY.decode(first.ids)
    assert_close(first.score, first.log_likelihood / 6, terms=1, dtype="float32")
    assert json.loads(json.dumps(first.as_json()))["ids"] == first.ids
    assert first.as_text(1, shows_prompt=True).endswith(f", 6 tokens, cut\nab{first.text}")
    of_ranks = {"method": "rank", "num_samples": 5, "num_results": 3, "max_new_tokens": 6}
    ((first, *others),) = continued(
        lm_training, texts("ab"), stop_texts=[VOCABULARY.decode([first.ids[0]])], **of_ranks
    )
    assert [c.rank for c in (first, *others)] == [1, 2, 3]
    assert first.score >= others[0].score >= others[1].score
    assert "tokens" not in first.as_json()


@pytest.mark.long
def test_a_stop_is_not_in_the_text(lm_training: Training) -> None:
    ((free,),) = continued(lm_training, texts("ab"), max_new_tokens=4)
    stop = free.ids[1]
    ((found,),) = continued(lm_training, texts("ab"), max_new_tokens=4, stop_ids=[stop])
    assert found.is_stopped
    assert found.ids == free.ids[: free.ids.index(stop) + 1]
    assert found.text == VOCABULARY.decode(found.ids[:-1])


def test_beams_of_an_encoders_outputs(pair_training: Training) -> None:
    work = continued(pair_training, texts("ab", "cde"), method="beam", beam_size=3, max_new_tokens=2)
    assert work.has_encoder
    for beams in work:
        assert [c.rank for c in beams] == [1, 2, 3]
        assert all(len(c.ids) <= 2 for c in beams)
        assert beams == sorted(beams, key=lambda c: -c.score)


def test_scores_are_the_log_softmax_of_whole_passes(lm_training: Training, whole_passes: Any) -> None:
    lines = ["ab", "", "héllo", "abcdefghijkl"]
    found = list(scored(lm_training, texts(*lines)))
    passes = whole_passes(lm_training.model, Sizes(1, LENGTH)).program
    total = 0.0
    for line, score in zip(lines, found, strict=True):
        ids = VOCABULARY.encode(line)
        rows = passes.result(targets=np.array([ids + [0] * (LENGTH - len(ids))], np.int32))[0]
        assert_close(
            score.log_likelihood, sum(float(rows[i, t]) for i, t in enumerate(ids)), terms=TERMS, dtype="float32"
        )
        assert (score.num_tokens, score.num_bytes) == (len(ids), len(line.encode()))
        total += score.log_likelihood
    assert (found[1].perplexity, found[1].bits_per_byte) == (None, None)
    together = TextScore.total(found)
    assert_close(
        together.perplexity,
        math.exp(-total / 20),
        terms=FUNCTION_TERMS,
        magnitude=math.exp(-total / 20) * (1 - total / 20),
        dtype="float64",
    )
    assert_close(together.bits_per_byte, -total / math.log(2) / 20, terms=4, dtype="float64")
    assert_close(
        found[0].as_json()["perplexity"],
        math.exp(-found[0].log_likelihood / 2),
        terms=FUNCTION_TERMS,
        magnitude=10 * math.exp(-found[0].log_likelihood / 2),
        dtype="float64",
    )


def test_a_token_that_nothing_predicts_counts_in_no_score(lm_training: Training) -> None:
    own = dataclasses.replace(lm_training, model=dataclasses.replace(lm_training.model, starts_prompts=False))
    begun = dataclasses.replace(
        lm_training, model=dataclasses.replace(lm_training.model, start_id=VOCABULARY.encode("h")[0])
    )
    first, *others = scored(own, texts("héllo", "h", ""))
    (expected,) = scored(begun, texts("éllo"))
    assert (first.num_tokens, first.num_bytes) == (expected.num_tokens, expected.num_bytes) == (5, 5)
    assert_close(first.log_likelihood, expected.log_likelihood, terms=TERMS, dtype="float32")
    assert [(score.num_tokens, score.num_bytes, score.perplexity) for score in others] == [(0, 0, None)] * 2


def test_scores_of_pairs_count_the_end(pair_training: Training, whole_passes: Any) -> None:
    (score,) = scored(pair_training, texts("ab\tcd"))
    inputs = np.array([[*VOCABULARY.encode("ab"), 1] + [0] * (INPUTS_LENGTH - 3)], np.int32)
    targets = np.array([[*VOCABULARY.encode("cd"), 1] + [0] * (LENGTH - 3)], np.int32)
    passes = whole_passes(pair_training.model, Sizes(1, LENGTH, INPUTS_LENGTH)).program
    rows = passes.result(targets=targets, inputs=inputs)[0]
    assert_close(
        score.log_likelihood, sum(float(rows[i, targets[0, i]]) for i in range(3)), terms=TERMS, dtype="float32"
    )
    assert (score.num_tokens, score.num_bytes) == (3, 2)


def test_sizes_are_no_larger_than_needed(lm_training: Training) -> None:
    def sizes_of(work: ContinuedTexts) -> list[int]:
        return work.program.graph.operations[0].outputs[0].shape.to_integer_list

    assert sizes_of(continued(lm_training, texts("abc"), max_new_tokens=2)) == [2, 6]  # even: the mesh has two cores
    assert sizes_of(continued(lm_training, texts("abc"), batch_size=2)) == [2, LENGTH]


Make = Callable[[Training, Training], object]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda lm, pair: continued(lm, texts("ab", "x" * 12)),
            r"prompt 2 \('x{12}'\) is too long: it has 12 tokens, and the greatest length is 12, and the continuation "
            r"needs one token at least.\nShorten it, or leave it out; nothing has run.",
        ),
        (lambda lm, pair: continued(lm, texts("x" * 60)), r"prompt 1 \('x{37}\.\.\.'\) is too long: it has 60"),
        (lambda lm, pair: continued(pair, texts("12345678")), "the length of the model's inputs is 8, the end incl"),
        (
            lambda lm, pair: continued(lm, texts("a"), max_length=13),
            "max_length is 13, but the model was trained .* 12",
        ),
        (lambda lm, pair: continued(lm, texts("a"), stop_ids=[400]), "stop_ids has 400, and the .* ids end at 257"),
        (lambda lm, pair: scored(lm, texts("x" * 13)), "has 13 tokens, and the greatest length is 12."),
        (lambda lm, pair: scored(pair, texts("ab")), r"prompt 1 \('ab'\) is not a pair: the model has an encoder"),
        (
            lambda lm, pair: continued(dataclasses.replace(lm, model=MLPClassifier(3)), texts("ab")),
            r"MLPClassifier cannot be decoded: .* \(it has no incremental_decoder\)",
        ),
    ],
)
def test_what_does_not_fit(make: Make, message: str, lm_training: Training, pair_training: Training) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(lm_training, pair_training)
