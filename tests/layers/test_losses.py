from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError

BATCH, VOCAB = mtf.Dimension("batch", 6), mtf.Dimension("vocab", 8)
LOGITS = (50 * np.random.default_rng(0).normal(size=(6, 8))).astype(np.float32)
LABELS = np.array([0, 7, 3, 3, -1, 5], np.int32)
LAYOUTS = ["", "vocab:cols", "batch:rows;vocab:cols", "vocab:rows+cols"]


def loss_and_gradient(targets: np.ndarray, layout: str, z_loss: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    def program(logits: mtf.Tensor, targets: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        loss = mtf.layers.softmax_cross_entropy_with_logits(logits, targets, VOCAB, z_loss)
        return loss, mtf.gradients([loss], [logits])[0]

    inputs = {
        "logits": mtf.TensorSpec([BATCH, VOCAB], tf.float32),
        "targets": mtf.TensorSpec([BATCH, VOCAB][: targets.ndim], tf.as_dtype(targets.dtype)),
    }
    loss, gradient = mtf.function(program, mtf.SpmdMeshImpl("rows:2;cols:4", layout), inputs=inputs)(
        logits=LOGITS, targets=targets
    )
    return np.asarray(loss), np.asarray(gradient)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_soft_targets_as_tensorflow(layout: str) -> None:
    targets = np.random.default_rng(1).dirichlet(np.ones(8), size=6).astype(np.float32)
    logits = tf.constant(LOGITS)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        expected = tf.nn.softmax_cross_entropy_with_logits(targets, logits)
    loss, gradient = loss_and_gradient(targets, layout)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(gradient, tape.gradient(expected, logits), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_hard_targets_as_tensorflow_and_padding_counts_nothing(layout: str) -> None:
    loss, gradient = loss_and_gradient(LABELS, layout)
    expected = tf.nn.softmax_cross_entropy_with_logits(tf.one_hot(LABELS, 8), LOGITS)
    np.testing.assert_allclose(loss, expected, rtol=1e-5, atol=1e-5)
    assert loss[LABELS < 0] == 0
    assert not gradient[LABELS < 0].any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_z_loss(layout: str) -> None:
    log_z = np.log(np.exp(LOGITS.astype(np.float64)).sum(-1))
    expected = loss_and_gradient(LABELS, "")[0] + 0.01 * log_z**2
    np.testing.assert_allclose(loss_and_gradient(LABELS, layout, 0.01)[0], expected, rtol=1e-5)


def check(targets_shape: list[mtf.Dimension], targets_dtype: tf.DType, vocab_dim: mtf.Dimension = VOCAB) -> None:
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        targets = mtf.zeros(mesh, targets_shape, targets_dtype)
        mtf.layers.softmax_cross_entropy_with_logits(mtf.zeros(mesh, [BATCH, VOCAB]), targets, vocab_dim)


def test_bad_targets() -> None:
    with pytest.raises(ShapeError, match=r"targets of type float32 need the dimensions \[batch:6 vocab:8\]"):
        check([BATCH], tf.float32)
    with pytest.raises(ShapeError, match=r"targets of type int32 need the dimensions \[batch:6\]"):
        check([BATCH, VOCAB], tf.int32)
    with pytest.raises(DtypeError, match=r"floating \(a distribution\) or integer \(an index\)"):
        check([BATCH], tf.bool)


def test_unknown_vocabulary() -> None:
    with pytest.raises(ShapeError, match=r'no dimension "vocabulary" .*did you mean "vocab"\?'):
        check([BATCH], tf.int32, mtf.Dimension("vocabulary", 8))
