"""Reports of other systems about losses: what does not count, and what counts too often."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.moe import Gates, MixtureOfExperts, SwitchRouter, TopNRouter
from meshtf.layers.transformer import TokenLoss
from meshtf.testing import assert_close, interpret
from tests.layers.moe.small_mixture import BATCH, D_MODEL, LENGTH, observed

pytestmark = pytest.mark.quick

ROWS, VOCAB = mtf.Dimension("rows", 6), mtf.Dimension("vocab", 5)
LOGITS = np.random.default_rng(0).normal(size=(6, 5))
TARGETS = np.array([3, -100, 0, 4, -100, 1], np.int32)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("z_loss", [0.0, 0.01])
def test_a_target_that_is_ignored_is_not_smoothed(smoothing: float, z_loss: float) -> None:
    """pytorch/pytorch#73205: the even share of an ignored target counted in the loss, and in its gradient."""

    def program(logits: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor]:
        counted = mtf.cast(mtf.greater_equal(targets, 0), tf.float64)
        loss = mtf.layers.softmax_cross_entropy_with_logits(
            logits, targets, VOCAB, z_loss, label_smoothing=smoothing, weights=counted
        )
        return [loss, *mtf.gradients(mtf.reduce_sum(loss), [logits])]

    log_z = np.log(np.exp(LOGITS).sum(1))
    chosen = LOGITS[np.arange(6), np.maximum(TARGETS, 0)]
    plain = (1 - smoothing) * (log_z - chosen) + smoothing * (log_z - LOGITS.mean(1)) + z_loss * log_z**2
    inputs = {"logits": ([ROWS, VOCAB], LOGITS), "targets": ([ROWS], TARGETS)}
    for mesh, layout in (("a:1", ""), ("a:2", "rows:a"), ("a:5", "vocab:a"), ("a:2", "vocab:a")):
        loss, grad = interpret(program, inputs, mesh, layout).results
        np.testing.assert_allclose(loss, np.where(TARGETS < 0, 0, plain), atol=1e-14)
        np.testing.assert_array_equal(grad[TARGETS < 0], 0)
        assert np.abs(grad[TARGETS >= 0]).min() > 0


@pytest.mark.parametrize("is_soft", [True, False])
def test_an_impossible_class_that_is_not_wanted_costs_nothing(is_soft: bool) -> None:
    """google-deepmind/optax#898: -inf * 0, in the loss of a distribution, and of a target that does not count."""
    logits = np.where(np.arange(5) == 4, -np.inf, LOGITS)
    targets = np.array([3, 4, 0, 2, 1, 1], np.int32)  # the second is the one that is impossible
    even = np.where(np.arange(5) == 4, 0.0, 0.25)
    wanted = np.where(np.arange(6)[:, None] == 1, even, np.eye(5)[targets]) if is_soft else targets

    def program(logits: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor]:
        counted = None if is_soft else mtf.cast(mtf.less(targets, 4), tf.float64)
        loss = mtf.layers.softmax_cross_entropy_with_logits(
            logits, targets, VOCAB, 1e-2, vocab_size=5 if is_soft else 4, weights=counted
        )
        return [loss, *mtf.gradients(mtf.reduce_sum(loss), [logits])]

    log_z = np.log(np.exp(logits).sum(1))
    chosen = LOGITS[np.arange(6), targets]
    chosen[1] = LOGITS[1, :4].mean()
    expected = log_z - chosen + 1e-2 * log_z**2
    if not is_soft:
        expected[1] = 0
    inputs = {"logits": ([ROWS, VOCAB], logits), "targets": ([ROWS, VOCAB] if is_soft else [ROWS], wanted)}
    for mesh, layout in (("a:1", ""), ("a:2", "rows:a"), ("a:5", "vocab:a"), ("a:2", "vocab:a")):
        loss, grad = interpret(program, inputs, mesh, layout).results
        np.testing.assert_allclose(loss, expected, atol=1e-13)
        assert np.isfinite(grad).all()
        np.testing.assert_array_equal(grad[:, 4], 0)


def test_a_wanted_class_that_is_impossible_costs_infinitely_much() -> None:
    logits, targets = np.where(np.arange(5) == 4, -np.inf, LOGITS), np.eye(5)[[4] * 6] * 0.5 + 0.1
    program = lambda logits, targets: mtf.layers.softmax_cross_entropy_with_logits(logits, targets, VOCAB)  # noqa: E731
    inputs = {"logits": ([ROWS, VOCAB], logits), "targets": ([ROWS, VOCAB], targets)}
    assert (interpret(program, inputs, "a:2", "vocab:a").results == np.inf).all()


def test_a_certain_prediction_that_is_right_costs_nothing() -> None:
    """The same of two classes: inf * 0 where the sigmoid is 1 or 0. The gradient by a target of 0 is that of others."""

    def program(logits: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor]:
        loss = mtf.layers.sigmoid_cross_entropy_with_logits(logits, targets)
        return [loss, *mtf.gradients(mtf.reduce_sum(loss), [logits, targets])]

    logits = np.array([np.inf, -np.inf, np.inf, -np.inf, 0.0, 3.0])
    targets = np.array([1.0, 0.0, 0.0, 1.0, 0.5, 0.0])
    for mesh, layout in (("a:1", ""), ("a:2", "rows:a")):
        inputs = {"logits": ([ROWS], logits), "targets": ([ROWS], targets)}
        loss, by_logits, by_targets = interpret(program, inputs, mesh, layout).results
        np.testing.assert_allclose(loss, [0, 0, np.inf, np.inf, np.log(2), np.log1p(np.exp(3.0))], rtol=1e-15)
        np.testing.assert_allclose(by_logits[[0, 1, 4, 5]], [0, 0, 0, 1 / (1 + np.exp(-3.0))], atol=1e-15)
        np.testing.assert_allclose(by_targets[[4, 5]], [0, -3], atol=1e-15)


@pytest.mark.parametrize("size", [1.0, 1e3, 1e30])
def test_logits_of_any_size_are_smoothed_over_the_whole_vocabulary(size: float) -> None:
    """NVIDIA/Megatron-LM#7464, #737: means over each slice, and the logarithm of a probability that is 0."""
    targets = np.array([3, 0, 0, 4, 2, 1], np.int32)

    def program(logits: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor]:
        loss = mtf.layers.softmax_cross_entropy_with_logits(logits, targets, VOCAB, label_smoothing=0.1)
        return [loss, *mtf.gradients(mtf.reduce_sum(loss), [logits])]

    logits = LOGITS * size
    centred = logits - logits.max(1, keepdims=True)
    log_z = np.log(np.exp(centred).sum(1, keepdims=True))
    share = 0.9 * np.eye(5)[targets] + 0.02
    inputs = {"logits": ([ROWS, VOCAB], logits), "targets": ([ROWS], targets)}
    for mesh, layout in (("a:1", ""), ("a:5", "vocab:a"), ("a:2", "vocab:a"), ("a:4", "vocab:a")):
        loss, grad = interpret(program, inputs, mesh, layout, max_padding=0.9).results
        np.testing.assert_allclose(loss, ((log_z - centred) * share).sum(1), rtol=1e-12)
        np.testing.assert_allclose(grad, np.exp(centred - log_z) - share, atol=1e-13)


@pytest.mark.parametrize("padding_id", [-100, 2])
def test_padding_of_any_id_is_no_target(padding_id: int) -> None:
    """NVIDIA-NeMo/Speech#2466 asked for it: the padding of targets may be an id that no class has."""
    vocabulary = mtf.layers.VocabularyEmbedding(VOCAB.size, name="embedding")
    targets = np.where(TARGETS < 0, padding_id, TARGETS).astype(np.int32)

    def program(logits: mtf.Tensor, targets: mtf.Tensor) -> list[mtf.Tensor]:
        loss = TokenLoss(label_smoothing=0.1, padding_id=padding_id)
        values, weights = loss.metrics(logits, targets, None, vocabulary, is_training=True)["loss"]
        return [values * mtf.cast(weights, values.dtype), weights]

    vocab = vocabulary.vocab
    logits = np.full([6, vocab.size], -1e30)
    logits[:, : VOCAB.size] = LOGITS
    inputs = {"logits": ([ROWS, vocab], logits), "targets": ([ROWS], targets)}
    loss, weights = interpret(program, inputs, "a:2", "rows:a").results
    np.testing.assert_array_equal(weights, targets != padding_id)
    log_z = np.log(np.exp(LOGITS).sum(1))
    expected = 0.9 * (log_z - LOGITS[np.arange(6), np.maximum(targets, 0)]) + 0.1 * (log_z - LOGITS.mean(1))
    np.testing.assert_allclose(loss, expected * (targets != padding_id), atol=1e-12)


def mixture(num_choices: int) -> MixtureOfExperts:
    router = SwitchRouter() if num_choices == 1 else TopNRouter(num_choices)
    gates = Gates(z_loss=0.5)
    return MixtureOfExperts(num_experts=4, d_ff=8, router=router, gates=gates, capacity=None, balance_loss=1.0)


def seen_by(layer: MixtureOfExperts, x: np.ndarray, segments: np.ndarray | None) -> dict[str, np.ndarray]:
    inputs = {"x": (mtf.Shape([BATCH, LENGTH, D_MODEL]), x)}
    if segments is not None:
        inputs["segments"] = (mtf.Shape([BATCH, LENGTH]), segments)
    return interpret(observed(layer, is_training=True), inputs, "rows:2", "batch:rows").results[1]


def test_padding_has_no_share_in_the_auxiliary_loss() -> None:
    """NVIDIA/Megatron-LM#2121: tokens of padding counted in the loads and in the normaliser."""
    rng, layer = np.random.default_rng(1), mixture(2)
    x = rng.normal(size=(BATCH.size, LENGTH.size, D_MODEL.size)).astype(np.float32)
    segments = np.ones([BATCH.size, LENGTH.size], np.int32)
    segments[:, 4:] = 0
    segments[-2:] = 0  # whole groups of padding
    other = np.where(segments[..., None] == 0, 100.0 * rng.normal(size=x.shape), x).astype(np.float32)
    first, second = seen_by(layer, x, segments), seen_by(layer, other, segments)
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-5, err_msg=name)


def test_groups_of_padding_alone_do_not_dilute_the_balance() -> None:
    """The same: a group without a token is none, whatever its number of rows."""
    x = np.tile(np.array([3.0, -1.0, 2.0, 0.5], np.float32), [BATCH.size, LENGTH.size, 1])
    segments = np.ones([BATCH.size, LENGTH.size], np.int32)
    full = seen_by(mixture(1), x, segments)
    segments[3:] = 0
    part = seen_by(mixture(1), x, segments)
    # All tokens are alike, and so are all groups that have any.
    assert_close(part["balance"], full["balance"], terms=64, magnitude=4.0)
    assert_close(part["auxiliary_loss"], full["auxiliary_loss"], terms=64, magnitude=8.0)


@pytest.mark.parametrize("num_choices", [1, 2, 3])
def test_the_balance_is_1_for_any_number_of_choices(num_choices: int) -> None:
    """huggingface/transformers#43775: loads of k choices added up to k, and the loss grew with k."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(BATCH.size, LENGTH.size, D_MODEL.size)).astype(np.float32)
    seen = seen_by(mixture(num_choices), x, None)
    assert_close(seen["load"].sum(), np.float32(1), terms=8)
    assert 0.9 < seen["balance"] < 4.0
    assert seen["balance"] <= 1.0 + 3.0 / num_choices + 1e-5, "all choices of all tokens alike would give 4 / k"
