"""The loss and accuracy of tokens, and what of them counts."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import VocabularyEmbedding
from meshtf.layers.transformer import TokenLoss
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

VOCABULARY = VocabularyEmbedding(5, multiple=4)
TOKENS = mtf.Shape([("batch", 2), ("length", 3)])
LOGITS = np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)
LOGITS[..., 5:] = mtf.layers.MASKED_LOGIT
TARGETS = np.array([[1, 4, 0], [2, 0, 0]], np.int32)
LOG_PROBABILITIES = LOGITS[..., :5] - np.log(np.exp(LOGITS[..., :5]).sum(-1, keepdims=True))
PLAIN = -np.take_along_axis(LOG_PROBABILITIES, TARGETS[..., None], -1)[..., 0]


def metrics(loss: TokenLoss, is_training: bool, weights: np.ndarray | None = None) -> dict[str, tuple[np.ndarray, ...]]:
    arrays = {"logits": (TOKENS + [VOCABULARY.vocab], LOGITS), "targets": (TOKENS, TARGETS)}
    if weights is not None:
        arrays["weights"] = (TOKENS, weights)

    def program(logits: mtf.Tensor, targets: mtf.Tensor, **given: mtf.Tensor) -> dict[str, tuple[mtf.Tensor, ...]]:
        return loss.metrics(logits, targets, given.get("weights"), VOCABULARY, is_training=is_training)

    return interpret(program, arrays, "rows:2;cols:2", "batch:rows;vocab:cols").results


def test_padding_has_no_weight_unless_weights_are_given() -> None:
    (loss, weights), (is_right, same_weights) = metrics(TokenLoss(), True).values()
    assert_close(loss, PLAIN, terms=(5, 2 * FUNCTION_TERMS))
    np.testing.assert_array_equal(weights, TARGETS != 0)
    np.testing.assert_array_equal(is_right, LOGITS.argmax(-1) == TARGETS)
    np.testing.assert_array_equal(same_weights, weights)
    given = np.array([[0, 2, 0.5], [1, 0, 0]], np.float32)
    np.testing.assert_array_equal(metrics(TokenLoss(), True, given)["loss"][1], given)


@pytest.mark.parametrize("is_training", [True, False])
def test_refinements_are_for_training(is_training: bool) -> None:
    refined = TokenLoss(label_smoothing=0.1, z_loss=0.01)
    log_normaliser = np.log(np.exp(LOGITS[..., :5]).sum(-1))
    smoothed = 0.9 * PLAIN - 0.1 * LOG_PROBABILITIES.mean(-1) + 0.01 * log_normaliser**2
    assert_close(
        metrics(refined, is_training)["loss"][0], smoothed if is_training else PLAIN, terms=(2 * 5, 4 * FUNCTION_TERMS)
    )
