"""The loss and accuracy of tokens, and what of them counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.layers import VocabularyEmbedding
from meshtf.layers.transformer import TokenLoss
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from meshtf.testing.interpret import build

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


@pytest.mark.parametrize("layout", ["", "batch:rows;vocab:cols", "length:rows;d_model:cols"])
def test_blocks_change_no_loss_and_no_gradient(layout: str) -> None:
    """With a projection and a bias of the vocabulary's own, and one table for several blocks."""
    vocabulary = VocabularyEmbedding(5, multiple=4, use_output_bias=True, d_embedding=2)
    d_model, tokens = mtf.Dimension("d_model", 4), mtf.Shape([("batch", 2), ("length", 12)])
    generator = np.random.default_rng(1)
    arrays = {
        "x": (tokens + [d_model], generator.normal(size=(2, 12, 4)).astype(np.float32)),
        "targets": (tokens, generator.integers(0, 5, (2, 12)).astype(np.int32)),
    }

    def program(blocks: int) -> Callable[[mtf.Tensor, mtf.Tensor], list[mtf.Tensor]]:
        def found(x: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor]:
            loss = TokenLoss(blocks=blocks)
            metrics = loss.metrics_of_vectors(x, d_model, targets, None, vocabulary, is_training=True)
            total = mtf.reduce_sum(metrics["loss"][0] * metrics["loss"][1])
            trained = [v.outputs[0] for v in x.graph.trainable_variables]
            return [*(t for pair in metrics.values() for t in pair), *mtf.gradients(total, [x, *trained])]

        return found

    plain, blocked = (interpret(program(n), arrays, "rows:2;cols:2", layout).results for n in (1, 3))
    assert len(plain) == 4 + 4
    for one, other in zip(plain, blocked, strict=True):
        assert_close(other, one, terms=(24, 3 * FUNCTION_TERMS), magnitude=4.0)


def test_blocks_must_divide_the_length() -> None:
    with pytest.raises(ShapeError, match=r"TokenLoss: blocks=5 must divide the length, 12, of \[batch:2 length:12 "):
        build(
            lambda x, targets: TokenLoss(blocks=5).metrics_of_vectors(
                x, x.shape[-1], targets, None, VOCABULARY, is_training=True
            ),
            {
                "x": mtf.TensorSpec("batch:2 length:12 d_model:4"),
                "targets": mtf.TensorSpec("batch:2 length:12", tf.int32),
            },
        )
    with pytest.raises(GraphError, match="TokenLoss: blocks must be a positive integer, and is 0"):
        TokenLoss(blocks=0)
