"""Prompts that begin with their own first token, against models that have that token as their start."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models import TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding import Decoding, Prompts
from meshtf.train.decoding.programs import decoded

BATCH, LENGTH = mtf.Dimension("batch", 4), mtf.Dimension("length", 6)
IDS = np.array([[2, 3, 4, 9, 9, 9], [9] * 6, [4, 9, 9, 9, 9, 9], [3, 2, 2, 2, 9, 9]], np.int32)
LENGTHS, ENDS = np.array([3, 0, 1, 4], np.int32), np.array([6, 4, 6, 4], np.int32)
START = 3
TERMS = 3 * (3 * 8 + 4 * 8 + 2 * 6 + 2 * 8 + 6 * FUNCTION_TERMS) + 8 + 5 + 2 * FUNCTION_TERMS
"""As in test_generation.py."""


def continued(
    model: TransformerLM, decoding: Decoding, ids: np.ndarray, lengths: np.ndarray, ends: np.ndarray, layout: str = ""
) -> dict[str, np.ndarray]:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        prompts = Prompts(ids, lengths, ends, 4)
        return decoded(model, {}, prompts, decoding, (1,)).by_name()

    arrays = {"ids": ([BATCH, LENGTH], ids), "lengths": ([BATCH], lengths), "ends": ([BATCH], ends)}
    return interpret(program, arrays, "rows:2;cols:2", layout).results


@pytest.mark.parametrize("method", ["beam", pytest.param("greedy", marks=pytest.mark.long)])
def test_the_first_token_of_a_prompt_is_the_start(method: str, lm: TransformerLM) -> None:
    decoding = Decoding(method=method, beam_size=2)
    own = dataclasses.replace(lm, start_id=START, starts_prompts=False)
    found = continued(own, decoding, IDS, LENGTHS, ENDS, "batch:rows;heads:cols;vocab:cols")
    behind = np.concatenate([IDS[:, 1:], IDS[:, :1]], axis=1)
    for row, start in enumerate([2, START, 4, 3]):
        taken = int(LENGTHS[row] > 0)
        model = dataclasses.replace(lm, start_id=start)
        lengths = np.maximum(LENGTHS - taken, 0)
        by_model = continued(model, decoding, behind if taken else IDS, lengths, ENDS - taken)
        expected = {name: value[row] for name, value in by_model.items()}
        assert (found["lengths"][row] == expected["lengths"] + taken).all()
        for name in ("log_likelihoods", "scores"):
            assert_close(found[name][row], expected[name], terms=TERMS, what=name)
        ids = expected["ids"]
        whole = np.concatenate([np.full_like(ids[..., :1], start), ids[..., :-1]], axis=-1) if taken else ids
        assert (found["ids"][row] == whole).all()
