"""Inputs and targets of one vocabulary, or of two."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers import AttentionConfig, VocabularyEmbedding
from meshtf.layers.transformer import CrossAttention, FeedForward, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import EncoderDecoder
from meshtf.testing import build

CONFIG = AttentionConfig(num_heads=2, d_kv=4)
TOKENS = mtf.TensorSpec([("batch", 2), ("length", 3)], tf.int32)


def model(targets: VocabularyEmbedding | None, output: VocabularyEmbedding | None = None) -> EncoderDecoder:
    encoder = TransformerStack([SelfAttention(CONFIG), FeedForward(8)], 1)
    decoder = TransformerStack([SelfAttention(CONFIG), CrossAttention(CONFIG), FeedForward(8)], 1)
    inputs = TokenEmbedding(VocabularyEmbedding(10, multiple=4))
    own = None if targets is None else TokenEmbedding(targets)
    return EncoderDecoder(8, inputs, encoder, decoder, output, targets_embedding=own)


def tables(made: EncoderDecoder) -> tuple[dict[str, int], int]:
    """How many ids each table has, and how many logits there are."""

    def logits_of(**features: mtf.Tensor) -> mtf.Tensor:
        return made.logits(features, False)

    graph, logits = build(logits_of, {"inputs": TOKENS, "targets": TOKENS})
    found = [v for v in graph.trainable_variables if v.shape.has("vocab")]
    return {v.full_name: v.unpadded_shape[0].size for v in found}, logits.shape.get_dim_by_name("vocab").size


def test_both_sides_share_a_table_unless_the_targets_have_their_own() -> None:
    assert tables(model(None)) == ({"embedding/weights": 10}, 12)
    own = VocabularyEmbedding(5, multiple=4, name="targets")
    assert tables(model(own)) == ({"embedding/weights": 10, "targets/weights": 5}, 8)
    output = VocabularyEmbedding(6, multiple=2, name="output")
    assert tables(model(own, output)) == ({"embedding/weights": 10, "targets/weights": 5, "output/weights": 6}, 6)


def test_the_vocabulary_is_that_of_the_targets() -> None:
    assert model(None).vocabulary.vocab_size == 10
    assert model(VocabularyEmbedding(5, name="targets")).vocabulary.vocab_size == 5


def test_two_tables_of_one_name_are_refused() -> None:
    with pytest.raises(GraphError, match=r'"embedding/weights" already exists .* give one of them another name'):
        tables(model(VocabularyEmbedding(5, multiple=4)))


def test_what_is_no_embedding_is_refused() -> None:
    wrong: Any = 3
    with pytest.raises(
        ValueError, match="EncoderDecoder: targets_embedding must be a TokenEmbedding, or None, and is 3"
    ):
        dataclasses.replace(model(None), targets_embedding=wrong)
