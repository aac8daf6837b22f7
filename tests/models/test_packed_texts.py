"""Sequences of ids, in packed examples with positions and without."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import AttentionConfig, VocabularyEmbedding
from meshtf.layers.transformer import Rotary, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM
from meshtf.testing import interpret

SEGMENTS = np.array([[1, 1, 1, 2, 2, 0], [1, 2, 2, 2, 3, 3]], np.int32)
POSITIONS = np.array([[0, 1, 2, 0, 1, 0], [0, 0, 1, 2, 0, 1]], np.int32)


@pytest.mark.parametrize("has_positions", [False, True])
@pytest.mark.parametrize("layout", ["", "length:a"])
def test_nothing_predicts_the_first_token_of_a_packed_text(layout: str, has_positions: bool) -> None:
    """If models see no begin token. Positions may be left out, since rotary embeddings and masks need none."""
    attention = SelfAttention(AttentionConfig(num_heads=1, d_kv=4), rotary=Rotary())
    embedding = TokenEmbedding(VocabularyEmbedding(8, multiple=8))
    model = TransformerLM(4, embedding, TransformerStack([attention], 1), starts_prompts=False)

    def program(ids: mtf.Tensor, segments: mtf.Tensor, positions: mtf.Tensor) -> mtf.Tensor:
        features = {"targets": ids, "targets_segmentation": segments}
        if has_positions:
            features["targets_position"] = positions
        return model.metrics(features, True)["loss"][1]

    shape, ids = "batch:2 length:6", np.where(SEGMENTS, 3, 0).astype(np.int32)
    inputs = {"ids": (shape, ids), "segments": (shape, SEGMENTS), "positions": (shape, POSITIONS)}
    found = interpret(program, inputs, "a:2", layout).results
    np.testing.assert_array_equal(found, POSITIONS > 0)
