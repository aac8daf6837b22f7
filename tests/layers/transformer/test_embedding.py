"""What a stack is given: the sum of vectors of ids, positions and types, normalised."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.layers import VocabularyEmbedding
from meshtf.layers.transformer import (
    LayerNorm,
    LearnedPositions,
    PositionEmbedding,
    SinusoidalPositions,
    TokenEmbedding,
)
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

TOKENS, D_MODEL = mtf.Shape([("batch", 2), ("length", 4)]), mtf.Dimension("d_model", 8)
IDS = np.array([[1, 2, 3, 4], [5, 6, 0, 0]], np.int32)
TYPES = np.array([[0, 0, 1, 1], [0, 1, 0, 0]], np.int32)
VOCABULARY = VocabularyEmbedding(10, multiple=4, name="words")


@pytest.mark.parametrize("has_types", [True, False])
@pytest.mark.parametrize("layout", ["", "batch:rows;vocab:cols", "d_model:rows", "token_types:rows;length:cols"])
def test_vectors_are_summed_and_normalised(layout: str, has_types: bool) -> None:
    embed = TokenEmbedding(VOCABULARY, LearnedPositions(6), num_token_types=2, norm=LayerNorm(1e-6))

    def program(ids: mtf.Tensor, types: mtf.Tensor) -> list[mtf.Tensor]:
        positions = mtf.range(ids.mesh, TOKENS[1])
        y = embed(ids, positions, D_MODEL, is_training=False, token_types=types if has_types else None)
        return [y, *(variable.outputs[0] for variable in ids.graph.variables.values())]

    done = interpret(program, {"ids": (TOKENS, IDS), "types": (TOKENS, TYPES)}, "rows:2;cols:2", layout)
    y, words, positions, types, *_ = done.results
    assert [x.shape for x in (words, positions, types)] == [(12, 8), (6, 8), (2, 8)]
    x = words[IDS] + positions[:4] + types[TYPES if has_types else np.zeros_like(TYPES)]
    expected = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
    assert_close(y, expected, terms=(3, 2 * 8, 2 * FUNCTION_TERMS))


def test_its_variables_are_in_the_scope_of_the_vocabulary() -> None:
    embed = TokenEmbedding(VOCABULARY, LearnedPositions(6), num_token_types=2, norm=LayerNorm())
    graph = mtf.Graph()
    with graph:
        ids = mtf.zeros(mtf.Mesh(graph), TOKENS, tf.int32)
        embed(ids, mtf.range(ids.mesh, TOKENS[1]), D_MODEL, is_training=True)
    names = ["weights", "positions", "token_types", "norm/scale", "norm/bias"]
    assert [*graph.variables] == [f"words/{name}" for name in names]


def test_two_embeddings_of_one_vocabulary_have_positions_of_their_own() -> None:
    """As BART's encoder and decoder. Each begins with its own rows, whatever stands before them."""
    inputs = TokenEmbedding(VOCABULARY, LearnedPositions(4, 1.0, offset=2))
    targets = TokenEmbedding(VOCABULARY, LearnedPositions(6, 1.0), name="targets")

    def program(ids: mtf.Tensor) -> list[mtf.Tensor]:
        positions = mtf.range(ids.mesh, TOKENS[1])
        y = [embed(ids, positions, D_MODEL, is_training=False) for embed in (inputs, targets)]
        assert [*ids.graph.variables] == ["words/weights", "words/positions", "targets/positions"]
        return [*y, *(variable.outputs[0] for variable in ids.graph.variables.values())]

    done = interpret(program, {"ids": (TOKENS, IDS)}, "rows:2;cols:2", "batch:rows;d_model:cols")
    y, z, words, own, others = done.results
    assert_close(y, words[IDS] + own[2:6], terms=2)
    assert_close(z, words[IDS] + others[:4], terms=2)


@pytest.mark.parametrize("layout", ["", "batch:rows;d_model:cols", "d_embedding:cols;length:rows"])
def test_narrow_vectors_are_summed_and_projected(layout: str) -> None:
    embed = TokenEmbedding(VOCABULARY, LearnedPositions(6), norm=LayerNorm(1e-6), d_embedding=4)

    def program(ids: mtf.Tensor) -> list[mtf.Tensor]:
        y = embed(ids, mtf.range(ids.mesh, TOKENS[1]), D_MODEL, is_training=False)
        return [y, *(variable.outputs[0] for variable in ids.graph.variables.values())]

    done = interpret(program, {"ids": (TOKENS, IDS)}, "rows:2;cols:2", layout)
    y, words, positions, scale, bias, kernel, added = done.results
    assert [x.shape for x in (words, positions, kernel, added)] == [(12, 4), (6, 4), (4, 8), (8,)]
    x = words[IDS] + positions[:4]
    x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6) * scale + bias
    assert_close(y, x @ kernel + added, terms=(2, 2 * 4, 2 * FUNCTION_TERMS, 4))


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="TokenEmbedding: d_embedding must be a positive integer, and is 0"):
        TokenEmbedding(VOCABULARY, d_embedding=0)
    with pytest.raises(ValueError, match="LearnedPositions: offset counts rows, at least 0, and is -1"):
        LearnedPositions(6, offset=-1)


@pytest.mark.parametrize(
    ("positions", "max_length"), [(None, None), (SinusoidalPositions(), None), (LearnedPositions(6, offset=2), 6)]
)
def test_how_long_sequences_may_be(positions: PositionEmbedding | None, max_length: int | None) -> None:
    assert TokenEmbedding(VOCABULARY, positions).max_length == max_length


def test_dropout_along_names() -> None:
    def program(broadcast_dims: tuple[str, ...]) -> np.ndarray:
        embed = TokenEmbedding(VOCABULARY, dropout_rate=0.5, dropout_broadcast_dims=broadcast_dims)

        def dropped(ids: mtf.Tensor) -> mtf.Tensor:
            return embed(ids, mtf.range(ids.mesh, TOKENS[1]), D_MODEL, is_training=True)

        return interpret(dropped, {"ids": (TOKENS, IDS)}, "rows:1").results == 0.0

    is_zero = program(("length",))
    assert 0 < is_zero.sum() < is_zero.size
    np.testing.assert_array_equal(is_zero, np.repeat(is_zero[:, :1], 4, axis=1))
    with pytest.raises(
        ShapeError, match=re.escape('no dimension "lenght" in [batch:2 length:4 d_model:8]; did you mean "length"?')
    ):
        program(("lenght",))
