"""Beam search by Transformers' rules, against the same search written out."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import assert_close, interpret
from meshtf.train.decoding import Prompts, TransformersRules, beam_search
from meshtf.train.decoding.beam_rules import GnmtRules
from tests.train.decoding.test_beam_search import TERMS, Bigrams

BATCH, LENGTH = mtf.Dimension("batch", 3), mtf.Dimension("length", 7)
IDS = np.array([[3, 2, 9, 9, 9, 9, 9], [9] * 7, [4, 9, 9, 9, 9, 9, 9]], np.int32)
LENGTHS, ENDS = np.array([2, 0, 1], np.int32), np.array([7, 6, 5], np.int32)

Found = list[tuple[float, tuple[int, ...]]]


def searched(
    log_probabilities: np.ndarray, row: int, beam_size: int, stop_ids: tuple[int, ...], rules: TransformersRules
) -> Found:
    """One prompt's search in float64, with Python's lists; -inf stands for a place that no sequence has taken."""
    prompt, most = tuple(IDS[row, : LENGTHS[row]].tolist()), int(ENDS[row] - LENGTHS[row])
    open_ones: Found = [(0.0, prompt)]
    finished: Found = [(-np.inf, ())] * beam_size
    for added in range(1, most + 1):
        candidates = sorted(
            (
                (likelihood + float(more), (*ids, token))
                for likelihood, ids in open_ones
                for token, more in enumerate(log_probabilities[len(ids), ids[-1] if ids else 0])
            ),
            reverse=True,
        )[: beam_size * (1 + len(stop_ids))]
        is_end = [ids[-1] in stop_ids or added == most for _, ids in candidates]
        new = [
            (x / added**rules.length_penalty, ids)
            for (x, ids), end in list(zip(candidates, is_end, strict=True))[:beam_size]
            if end
        ]
        finished = sorted(finished + new, reverse=True)[:beam_size]
        open_ones = [one for one, end in zip(candidates, is_end, strict=True) if not end][:beam_size]
        is_full = finished[-1][0] > -np.inf
        length = most if rules.early_stopping == "never" and rules.length_penalty > 0 else added
        if is_full and (rules.early_stopping is True or not open_ones):
            break
        if is_full and open_ones[0][0] / length**rules.length_penalty <= finished[-1][0]:
            break
    return [one for one in finished if one[0] > -np.inf]


def found_by(
    table: np.ndarray, beam_size: int, stop_ids: tuple[int, ...], rules: TransformersRules, layout: str
) -> dict[str, np.ndarray]:
    def program(ids: mtf.Tensor, lengths: mtf.Tensor, ends: mtf.Tensor) -> dict[str, mtf.Tensor]:
        prompts = Prompts(ids, lengths, ends)
        return beam_search(Longer(table), prompts, stop_ids, beam_size=beam_size, rules=rules).by_name()

    arrays = {"ids": ([BATCH, LENGTH], IDS), "lengths": ([BATCH], LENGTHS), "ends": ([BATCH], ENDS)}
    return interpret(program, arrays, "rows:2;cols:2", layout).results


class Longer(Bigrams):
    """Of seven positions."""

    length = LENGTH


CASES = list(itertools.product([True, False, "never"], [1.0, 0.0, -1.0, 2.0]))
SOME = [(False, -1.0), ("never", 2.0)]


@pytest.mark.parametrize(
    ("early_stopping", "length_penalty"),
    [case if case in SOME else pytest.param(*case, marks=pytest.mark.long) for case in CASES],
)
def test_a_search_is_that_of_transformers_written_out(early_stopping: bool | str, length_penalty: float) -> None:
    rules = TransformersRules(length_penalty, early_stopping)
    for seed, (beam_size, stop_ids, layout) in enumerate(
        [(2, (1,), "batch:rows"), (3, (1, 4), "beam:rows;vocab:cols")]
    ):
        table = np.random.default_rng(seed).normal(scale=2.0, size=(7, 5, 5)).astype(np.float32)
        table[..., 1] += 1.0  # so that sequences end early, and searches do
        log_probabilities = table - np.log(np.exp(table.astype(np.float64)).sum(-1, keepdims=True))
        found = found_by(table, beam_size, stop_ids, rules, layout)
        for row in range(BATCH.size):
            expected = searched(log_probabilities, row, beam_size, stop_ids, rules)
            assert np.isfinite(found["scores"][row]).sum() == len(expected)
            for rank, (score, ids) in enumerate(expected):
                assert tuple(found["ids"][row, rank, : found["lengths"][row, rank]].tolist()) == ids
                assert_close(found["scores"][row, rank], score, terms=TERMS)


def test_the_rules_differ() -> None:
    """Else the cases above would say little."""
    table = np.random.default_rng(1).normal(scale=2.0, size=(7, 5, 5)).astype(np.float32)
    table[..., 1] += 1.0
    log_probabilities = table - np.log(np.exp(table.astype(np.float64)).sum(-1, keepdims=True))
    searches = {case: searched(log_probabilities, 0, 3, (1, 4), TransformersRules(case[1], case[0])) for case in CASES}
    assert len({tuple(ids for _, ids in found) for found in searches.values()}) > 3


def test_own_rules_are_those_of_wu() -> None:
    """A log-likelihood of -3 after 1 and 7 tokens is divided by ((5 + n) / 6) ** 2, now or at the greatest length."""

    def program(likelihoods: mtf.Tensor, added: mtf.Tensor) -> list[mtf.Tensor]:
        rules = GnmtRules(2.0)
        return [rules.score(likelihoods, added), rules.hoped_for(likelihoods, added, added + 6.0)]

    arrays = {"likelihoods": ("n:2", np.float32([-3, -3])), "added": ("n:2", np.float32([1, 7]))}
    score, hoped_for = interpret(program, arrays, "all:1").results
    np.testing.assert_allclose(score, [-3.0, -0.75], rtol=1e-6)
    np.testing.assert_allclose(hoped_for, [-0.75, -1 / 3], rtol=1e-6)
