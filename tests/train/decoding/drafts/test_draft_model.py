"""Drafts that do not go with a model or with an option are refused before anything runs."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.models import EncoderDecoder, TransformerLM
from meshtf.train import Training
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data import ByteVocabulary, LanguageModel, Pad, TextFiles, TextPairs, TextTask
from meshtf.train.decoding import Decoding
from meshtf.train.decoding.drafts.draft_model import SCOPE, Draft, ScopedModel, decoder_within

LENGTH = 12


def training_of(model: Any, length: int = LENGTH, extra_ids: int = 0) -> Training:
    is_pair, vocabulary = isinstance(model, EncoderDecoder), ByteVocabulary(extra_ids)
    table = VocabularyEmbedding(vocabulary.size, 2)
    embedding = dataclasses.replace(model.embedding, vocabulary=table)
    task = TextTask(
        TextFiles("nowhere/*.txt"),
        vocabulary,
        TextPairs() if is_pair else LanguageModel(),
        {"inputs": length, "targets": length} if is_pair else length,
        arrangement=Pad(),
    )
    own, optimizer = dataclasses.replace(model, embedding=embedding), mtf.optimize.SgdOptimizer(0.1)
    return Training(own, task, optimizer, "rows:1", "", batch_size=4, num_steps=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "beam"}, "--draft is for --method=greedy and --method=sample, and --method is beam"),
        ({"method": "rank"}, "and --method is rank"),
        ({"presence_penalty": 0.5}, "--draft cannot be combined with penalties or bans: the model checks several"),
        ({"min_new_tokens": 3}, "--draft cannot be combined with penalties or bans"),
        ({"regex": "a", "logprobs": 2}, r"with a form of the text \(json_schema, grammar, regex\) and logprobs above"),
    ],
)
def test_options_that_depend_on_the_tokens_before(lm: TransformerLM, options: dict[str, Any], message: str) -> None:
    training = training_of(lm)
    with pytest.raises(ConfigurationError, match=message):
        Draft.of(training, 4).check_goes_with(training, Decoding(**options))


def test_models_that_do_not_go_together(lm: TransformerLM, encoder_decoder: EncoderDecoder) -> None:
    training, greedy = training_of(lm), Decoding(logprobs=0)
    others = {
        "The model has a ByteVocabulary of 258 ids, and the draft a ByteVocabulary of 261 ids": training_of(
            lm, extra_ids=3
        ),
        "trained on sequences of 8 tokens, and the model on ones of 12 .*\n--max_length=8": training_of(lm, 8),
        "TransformerLM and EncoderDecoder do not have the same inputs": training_of(encoder_decoder),
        "starts_prompts is True for the model, and\nFalse for the draft": training_of(
            dataclasses.replace(lm, starts_prompts=False)
        ),
    }
    for message, other in others.items():
        with pytest.raises(ConfigurationError, match=message):
            Draft.of(other, 4).check_goes_with(training, greedy)
    Draft.of(training_of(lm, 8), 4).check_goes_with(training, dataclasses.replace(greedy, max_length=8))
    with pytest.raises(ConfigurationError, match="--draft_tokens must be 1 or more, and is 0"):
        Draft.of(training, 0)


def test_a_decoder_that_reads_one_token_at_a_time(lm: TransformerLM) -> None:
    class OneByOne:
        metrics = None

        def incremental_decoder(self, features: dict[str, mtf.Tensor]) -> Any:
            return lm.incremental_decoder(features).with_beam(mtf.Dimension("beam", 2))

    with pytest.raises(ConfigurationError, match=r"The decoder of\nOneByOne, IncrementalDecoder, does not"):
        decoder_within(OneByOne(), {}, contextlib.nullcontext)


def test_all_variables_of_a_draft_are_in_its_scope(lm: TransformerLM) -> None:
    graph = mtf.Graph()
    mesh = mtf.Mesh(graph)
    with graph:
        model = ScopedModel(lm, SCOPE)
        model.metrics({"targets": mtf.zeros(mesh, "batch:2 length:3", tf.int32)}, False)
        expected = list(graph.variables)
        decoder = model.incremental_decoder({})
        lengths = mtf.zeros(mesh, "batch:2", tf.int32)
        state = decoder.fill(mtf.zeros(mesh, "batch:2 length:3", tf.int32), lengths)
        assert [x.shape for x in decoder.start(mesh, mtf.Shape(["batch:2"]), 3, tf.float32)] == [x.shape for x in state]
        decoder.step(lengths, lengths, lengths, state)
    assert list(graph.variables) == expected
    assert all(name.startswith("draft/") for name in expected)
