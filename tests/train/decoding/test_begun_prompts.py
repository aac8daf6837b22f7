"""Texts that begin with their own first token, against models that have that token as their start."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models import TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding import Decoding, Prompts, Stops
from meshtf.train.decoding.programs import decoded
from meshtf.train.decoding.scoring import token_log_likelihoods

LENGTH = mtf.Dimension("length", 6)
IDS = np.array([[2, 3, 4, 9, 9, 9], [9] * 6, [4, 9, 9, 9, 9, 9], [3, 2, 2, 2, 9, 9]], np.int32)
LENGTHS, ENDS = np.array([3, 0, 1, 4], np.int32), np.array([6, 4, 6, 4], np.int32)
START = 3
TERMS = 3 * (3 * 8 + 4 * 8 + 2 * 6 + 2 * 8 + 6 * FUNCTION_TERMS) + 8 + 5 + 2 * FUNCTION_TERMS
"""As in test_generation.py."""


def continued(
    model: TransformerLM,
    decoding: Decoding,
    ids: np.ndarray,
    lengths: np.ndarray,
    ends: np.ndarray,
    mesh: tuple[str, str] = ("rows:1", ""),
) -> dict[str, np.ndarray]:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        prompts = Prompts(ids, lengths, ends, 4)
        return decoded(model, {}, prompts, decoding, Stops((1,))).by_name()

    batch = mtf.Dimension("batch", len(ids))
    arrays = {"ids": ([batch, LENGTH], ids), "lengths": ([batch], lengths), "ends": ([batch], ends)}
    return interpret(program, arrays, *mesh).results


@pytest.mark.parametrize("method", ["beam", pytest.param("greedy", marks=pytest.mark.long)])
def test_the_first_token_of_a_prompt_is_the_start(method: str, lm: TransformerLM) -> None:
    decoding = Decoding(method=method, beam_size=2)
    own = dataclasses.replace(lm, start_id=START, starts_prompts=False)
    found = continued(own, decoding, IDS, LENGTHS, ENDS, ("rows:2;cols:2", "batch:rows;heads:cols;vocab:cols"))
    behind = np.concatenate([IDS[:, 1:], IDS[:, :1]], axis=1)
    for row, start in enumerate([2, START, 4, 3]):
        taken, alone = int(LENGTHS[row] > 0), slice(row, row + 1)
        model = dataclasses.replace(lm, start_id=start)
        lengths = np.maximum(LENGTHS - taken, 0)[alone]
        by_model = continued(model, decoding, (behind if taken else IDS)[alone], lengths, (ENDS - taken)[alone])
        expected = {name: value[0] for name, value in by_model.items()}
        assert (found["lengths"][row] == expected["lengths"] + taken).all()
        for name in ("log_likelihoods", "scores"):
            assert_close(found[name][row], expected[name], terms=TERMS, what=name)
        ids = expected["ids"]
        whole = np.concatenate([np.full_like(ids[..., :1], start), ids[..., :-1]], axis=-1) if taken else ids
        assert (found["ids"][row] == whole).all()


def test_a_text_is_scored_from_its_own_first_token(lm: TransformerLM) -> None:
    """As Transformers computes a loss. Two texts are packed in each row; nothing predicts their first tokens."""
    texts = np.array([[START, 2, 4, START, 4, 2], [START, 4, 4, START, 3, 3]], np.int32)
    segments, positions = np.array([[1, 1, 1, 2, 2, 2]] * 2, np.int32), np.array([[0, 1, 2, 0, 1, 2]] * 2, np.int32)
    shape, own = [mtf.Dimension("batch", 2), LENGTH], dataclasses.replace(lm, starts_prompts=False)

    def packed(ids: mtf.Tensor, segments: mtf.Tensor, positions: mtf.Tensor) -> mtf.Tensor:
        features = {"targets": ids, "targets_segmentation": segments, "targets_position": positions}
        return token_log_likelihoods(own, features)

    arrays = {"ids": (shape, texts), "segments": (shape, segments), "positions": (shape, positions)}
    found = interpret(packed, arrays, "rows:2;cols:2", "batch:rows;vocab:cols").results
    behind = np.concatenate([texts[:, 1:3], texts[:, 4:]])
    begun = dataclasses.replace(lm, start_id=START)
    rows = {"ids": ([mtf.Dimension("batch", 4), mtf.Dimension("length", 2)], behind)}
    expected = interpret(lambda ids: token_log_likelihoods(begun, {"targets": ids}), rows, "rows:1").results
    assert_close(np.concatenate([found[:, 1:3], found[:, 4:]]), expected, terms=TERMS)
    assert not found[:, [0, 3]].any()


@pytest.mark.parametrize("starts", [True, False])
def test_without_weights_padding_is_not_scored(starts: bool, lm: TransformerLM) -> None:
    """Nor is the first token, if nothing predicts it. The loss says which id is padding."""
    texts = np.array([[START, 2, 4, 0, 0, 0], [START, 4, 0, 4, 3, 0]], np.int32)
    own = dataclasses.replace(lm, starts_prompts=starts)
    rows = {"ids": ([mtf.Dimension("batch", 2), LENGTH], texts)}
    found = interpret(lambda ids: token_log_likelihoods(own, {"targets": ids}), rows, "rows:1").results
    np.testing.assert_array_equal(found != 0, (texts != 0) & (starts | (np.arange(LENGTH.size) > 0)))
