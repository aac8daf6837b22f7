"""Accepted tokens have the model's distribution: exactly, and in many draws."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.random.row_keys import prompt_keys
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.train.decoding.drafts.acceptance import CHECKED, DRAFTED, DraftRule, acceptance, leading, residual
from meshtf.train.decoding.sampling import Sampling

VOCAB, CASES = mtf.Dimension("vocab", 8), mtf.Dimension("cases", 4)
ROWS, DRAFTS, CHECKS = mtf.Dimension("batch", 8192), mtf.Dimension(DRAFTED, 2), mtf.Dimension(CHECKED, 3)
RNG = np.random.default_rng(1)
OF_MODEL = RNG.normal(scale=1.5, size=(CASES.size, VOCAB.size)).astype(np.float32)
OF_DRAFT = RNG.normal(scale=1.5, size=(CASES.size, VOCAB.size)).astype(np.float32)
OF_DRAFT[2] = OF_MODEL[2]  # the same distribution
OF_DRAFT[3] = -OF_MODEL[3]  # with top-k, of other tokens
MOST = 40.0
"""A limit of chi-square with 7 degrees of freedom, which right frequencies exceed once in 800,000 seeds."""


def probabilities(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """The probabilities with which a token is drawn, float64, written out."""
    found = np.zeros(logits.shape)
    for row, own in zip(logits.astype(np.float64), found, strict=True):
        order = np.argsort(-row)[: sampling.top_k]
        weights = np.exp((row[order] - row.max()) / sampling.temperature)
        before = np.cumsum(weights) - weights
        weights *= before < sampling.top_p * weights.sum()
        own[order] = weights / weights.sum()
    return found


@pytest.mark.parametrize(
    ("sampling", "layout"),
    [(Sampling(1.0), "vocab:rows"), (Sampling(0.7, top_k=4), ""), (Sampling(1.3, top_k=7, top_p=0.8), "cases:rows")],
)
def test_every_token_comes_out_with_the_probability_of_the_model(sampling: Sampling, layout: str) -> None:
    """Over all tokens that a draft may draw, accepted or replaced."""

    def program(p: mtf.Tensor, q: mtf.Tensor) -> list[mtf.Tensor]:
        rule = DraftRule(sampling, None, VOCAB)
        log_p, log_q = rule.log_probabilities(p), rule.log_probabilities(q)
        every = mtf.range(p.mesh, ("drawn", VOCAB.size))
        accepted = acceptance(log_p, log_q, every, VOCAB)
        return [mtf.transpose(accepted, [CASES, every.shape[0]]), residual(log_p, mtf.exp(log_q), VOCAB)]

    inputs = {"p": ([CASES, VOCAB], OF_MODEL), "q": ([CASES, VOCAB], OF_DRAFT)}
    accepted, left = interpret(program, inputs, "rows:2", layout).results
    p, q = probabilities(OF_MODEL, sampling), probabilities(OF_DRAFT, sampling)
    drawn = np.where(q > 0, q * accepted, 0.0)
    replaced = np.exp(left - left.max(-1, keepdims=True))
    replaced = replaced / replaced.sum(-1, keepdims=True)
    found = drawn + (1 - drawn.sum(-1, keepdims=True)) * replaced
    # The temperature, a softmax over the vocabulary and an exponential, of both; then their difference.
    assert_close(found, p, terms=2 * (1 + VOCAB.size + 3 * FUNCTION_TERMS) + 2, dtype="float32")
    assert not found[p == 0].any()
    np.testing.assert_allclose(accepted[2][q[2] > 0], 1.0, rtol=1e-15)


def test_many_draws_have_the_distribution_of_the_model() -> None:
    """Of the first token, and of each further one where the ones before it were accepted."""
    sampling = Sampling(0.9)

    def program(p: mtf.Tensor, q: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        rule = DraftRule(sampling, prompt_keys(p.mesh, mtf.Shape([ROWS])), VOCAB)
        position = 5 + mtf.zeros(p.mesh, [ROWS], tf.int32)
        p, q = mtf.broadcast(p, [ROWS, CHECKS, VOCAB]), mtf.broadcast(q, [ROWS, DRAFTS, VOCAB])
        drafted = [rule.drafted(mtf.gather(q, n, DRAFTS), position + n) for n in range(DRAFTS.size)]
        return rule.checked(p, q, mtf.stack(drafted, DRAFTED, axis=-1), position)

    of_model, of_draft = OF_MODEL[: CHECKS.size], OF_DRAFT[: DRAFTS.size]
    inputs = {"p": ([CHECKS, VOCAB], of_model), "q": ([DRAFTS, VOCAB], of_draft)}
    count, tokens = interpret(program, inputs, "rows:2", "batch:rows").results
    p, q = probabilities(of_model, sampling), probabilities(of_draft, sampling)
    for place in range(CHECKS.size):
        reached = tokens[count >= place, place]
        expected = len(reached) * p[place]
        assert expected.min() > 5
        assert ((np.bincount(reached, minlength=VOCAB.size) - expected) ** 2 / expected).sum() < MOST
    for place in range(DRAFTS.size):
        wanted, tries = np.minimum(p, np.pad(q, [(0, 1), (0, 0)]))[place].sum(), (count >= place).sum()
        assert abs((count > place).sum() - tries * wanted) < 5 * np.sqrt(tries * wanted * (1 - wanted))


def test_only_tokens_before_the_first_rejection_count() -> None:
    accepted = np.array([[1, 1, 1], [1, 0, 1], [0, 1, 1], [0, 0, 0]], bool)
    inputs = {"is_accepted": ([("batch", 4), (DRAFTED, 3)], accepted)}
    assert interpret(leading, inputs, "rows:3", "drafted:rows").results.tolist() == [3, 1, 0, 0]


def test_where_rounding_leaves_no_residual_it_is_the_model() -> None:
    logs = np.log(np.full([1, VOCAB.size], 1 / VOCAB.size, np.float32))
    inputs = {"p": ([("batch", 1), VOCAB], logs)}
    found = interpret(lambda p: residual(p, 1.5 * mtf.exp(p), VOCAB), inputs, "rows:1").results
    np.testing.assert_array_equal(found, logs)
