"""Scores of texts of different lengths in one batch."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers.attention import AttentionConfig, DynamicRotaryScaling, LongRopeRotaryScaling, RotaryScaling
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer import FeedForward, Rotary, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding.scoring import token_log_likelihoods

TERMS = 2 * (3 * 8 + 4 * 8 + 8 * 8 + 8 * FUNCTION_TERMS) + 8 + 9 + 2 * FUNCTION_TERMS


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("scaling", [DynamicRotaryScaling(8.0, 2), LongRopeRotaryScaling([1.0] * 2, [8.0] * 2, 5)])
def test_a_text_has_the_score_that_it_has_alone(scaling: RotaryScaling, starts: bool) -> None:
    """Also if the rotation of its tokens depends on its length, and longer texts are scored beside it."""
    attention = SelfAttention(AttentionConfig(num_heads=2, d_kv=4), rotary=Rotary(scaling=scaling))
    stack = TransformerStack([attention, FeedForward(16)], num_layers=2)
    model = TransformerLM(8, TokenEmbedding(VocabularyEmbedding(9)), stack, starts_prompts=starts)
    texts = np.random.default_rng(3).integers(2, 9, [4, 8]).astype(np.int32)
    lengths = [8, 3, 6, 0]

    def scored(targets: mtf.Tensor, weights: mtf.Tensor) -> mtf.Tensor:
        return token_log_likelihoods(model, {"targets": targets, "targets_weights": weights})

    def scores(texts: np.ndarray, lengths: list[int], layout: str) -> np.ndarray:
        shape = [mtf.Dimension("batch", len(texts)), mtf.Dimension("length", texts.shape[1])]
        weights = (np.arange(texts.shape[1]) < np.array(lengths)[:, None]).astype(np.float32)
        return interpret(scored, {"targets": (shape, texts), "weights": (shape, weights)}, "rows:2", layout).results

    found = scores(texts, lengths, "length:rows")
    for row, length in enumerate(lengths[:-1]):
        alone = scores(texts[row : row + 1, :length], [length], "")
        assert_close(found[row, :length], alone[0], terms=TERMS)
        assert not found[row, length:].any()
    assert not found[-1].any()
