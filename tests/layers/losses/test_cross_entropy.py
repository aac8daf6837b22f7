from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, IndexRangeError, ShapeError
from meshtf.layers import softmax_cross_entropy_with_logits
from meshtf.planning.plan import Collective
from meshtf.tensorflow_private.xla_modules import parsed_hlo
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan

BATCH, VOCAB = mtf.Dimension("batch", 8), mtf.Dimension("vocab", 8)
LAYOUTS = ["vocab:cols", "batch:rows;vocab:cols", "vocab:rows+cols", "batch:rows", "batch:cols+rows", "vocab:cols+rows"]
LOGITS = (50 * np.random.default_rng(0).normal(size=(8, 8))).astype(np.float32)
LABELS = np.array([0, 7, 3, 3, -1, 5, 8, 2], np.int32)
IS_CLASS = (LABELS >= 0) & (LABELS < 8)
SOFT = np.random.default_rng(1).dirichlet(np.ones(8), size=8).astype(np.float32)


def masked(logits: Any, size: int) -> Any:
    return tf.where(tf.range(8) < size, logits, -1e9)


def smooth(labels: Any, size: int, share: float) -> tf.Tensor:
    """Szegedy's targets, over the vocabulary without its padding; zeros for what is no class."""
    hard = tf.one_hot(tf.where(labels < size, labels, -1), 8)
    even = tf.constant([1 / size] * size + [0.0] * (8 - size))
    return hard * (1 - share) + even * share * tf.reduce_sum(hard, -1, keepdims=True)


def cross_entropy(labels: Any, logits: Any) -> tf.Tensor:
    """Unlike TensorFlow's own its gradient does not take for granted that the labels add up to 1."""
    return -tf.reduce_sum(labels * tf.nn.log_softmax(logits), -1)


def test_losses_are_the_formulas(check_layers: Callable[..., Any]) -> None:
    def layers(logits: mtf.Tensor, labels: mtf.Tensor, soft: mtf.Tensor) -> list[mtf.Tensor]:
        padded = mtf.layers.mask_padded_logits(logits, VOCAB, 6)
        return [
            softmax_cross_entropy_with_logits(logits, labels, VOCAB, check_targets=False),
            softmax_cross_entropy_with_logits(logits, mtf.stop_gradient(soft), VOCAB),
            softmax_cross_entropy_with_logits(logits, labels, VOCAB, 0.01, check_targets=False),
            softmax_cross_entropy_with_logits(logits, labels, VOCAB, label_smoothing=0.3, check_targets=False),
            softmax_cross_entropy_with_logits(
                padded, labels, VOCAB, 0.01, label_smoothing=0.1, vocab_size=6, check_targets=False
            ),
            mtf.layers.sigmoid_cross_entropy_with_logits(logits, mtf.stop_gradient(soft)),
        ]

    def formulas(variables: Any, logits: tf.Tensor, labels: tf.Tensor, soft: tf.Tensor) -> list[tf.Tensor]:
        log_z, is_class = tf.reduce_logsumexp(logits, -1), IS_CLASS.astype(np.float32)
        log_z_6 = tf.reduce_logsumexp(logits[:, :6], -1)
        hard = cross_entropy(smooth(labels, 8, 0.0), logits)
        is_class_of_6 = tf.reduce_sum(smooth(labels, 6, 0.0), -1)
        return [
            hard,
            cross_entropy(tf.stop_gradient(soft), logits),
            hard + 0.01 * log_z**2 * is_class,
            cross_entropy(smooth(labels, 8, 0.3), logits),
            cross_entropy(smooth(labels, 6, 0.1), masked(logits, 6)) + 0.01 * log_z_6**2 * is_class_of_6,
            tf.nn.sigmoid_cross_entropy_with_logits(tf.stop_gradient(soft), logits),
        ]

    inputs = {"logits": ([BATCH, VOCAB], LOGITS), "labels": ([BATCH], LABELS), "soft": ([BATCH, VOCAB], SOFT)}
    done = check_layers(layers, formulas, inputs, LAYOUTS)
    values, *_ = done.results
    for value in (values[0], values[2], values[3], values[4]):
        assert not value[~IS_CLASS].any()


@pytest.mark.parametrize("layout", ["", "batch:rows;vocab:cols"])
def test_what_is_no_class_ends_the_step_or_has_no_loss_and_no_gradient(layout: str) -> None:
    def program(logits: mtf.Tensor, labels: mtf.Tensor, weights: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        options: dict[str, Any] = {"z_loss": 0.1, "label_smoothing": 0.1, "vocab_size": 6}
        loss = softmax_cross_entropy_with_logits(logits, labels, VOCAB, weights=weights, **options)
        return loss, mtf.gradients(loss, logits)[0]

    counts = (LABELS >= 0) & (LABELS < 6)
    inputs = {"logits": ([BATCH, VOCAB], LOGITS), "labels": ([BATCH], LABELS), "weights": ([BATCH], 1.0 * counts)}
    loss, gradient = interpret(program, inputs, "rows:2;cols:2", layout).results
    np.testing.assert_array_equal(loss != 0, counts)
    np.testing.assert_array_equal(gradient.any(-1), counts)
    inputs["weights"] = ([BATCH], np.ones(8))
    with pytest.raises(IndexRangeError) as caught:
        interpret(program, inputs, "rows:2;cols:2", layout)
    first = int(np.argmin(counts))
    fact = f'a target outside of 0 to 5 in input "labels" [batch:8] int32: {LABELS[first]} at batch {first}'
    assert fact in str(caught.value)
    assert "check_targets=False" in str(caught.value)


def test_narrow_logits_lose_nothing_more() -> None:
    """In bfloat16 a loss of about 8 would be off by up to 0.03."""
    logits = tf.cast(np.random.default_rng(0).normal(size=(8, 8)) + 5, tf.bfloat16)
    expected = tf.nn.sparse_softmax_cross_entropy_with_logits(np.arange(8), tf.cast(logits, tf.float64))

    def program(x: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        narrow = mtf.to_bfloat16(x)
        loss = softmax_cross_entropy_with_logits(narrow, labels, VOCAB)
        assert mtf.gradients(loss, narrow)[0].dtype == tf.bfloat16
        return loss

    inputs = {"x": ([BATCH, VOCAB], tf.cast(logits, tf.float32).numpy()), "labels": ([BATCH], np.arange(8))}
    loss = interpret(program, inputs, "cores:1").results
    assert loss.dtype == np.float32
    assert_close(loss, expected, terms=(8, 2 * FUNCTION_TERMS))


@pytest.mark.parametrize(("platform", "barriers"), [("", 1), ("cuda", 0)])
def test_a_gpu_may_merge_both_passes(platform: str, barriers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a barrier, CUDA's compiler writes the masked logits: 3.3 of 60.5 GB of a step of GPT-2."""
    monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", platform)

    def program(logits: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor | None:
        loss = softmax_cross_entropy_with_logits(logits, labels, "vocab", check_targets=False)
        return mtf.gradients(mtf.reduce_sum(loss), logits)[0]

    inputs = {"logits": mtf.TensorSpec("batch:4 vocab:8", tf.bfloat16), "labels": mtf.TensorSpec("batch:4", tf.int32)}
    hlo = mtf.function(program, mtf.GpuMeshImpl("all:1", ""), inputs).hlo()
    assert hlo is not None
    opcodes = [i.opcode for computation in parsed_hlo(hlo).computations for i in computation.instructions]
    assert opcodes.count("opt-barrier") == barriers


@pytest.mark.parametrize("layout", ["", "batch:rows;vocab:cols"])
def test_the_gradient_of_narrow_logits_is_rounded_once(layout: str) -> None:
    """The share of a likely class is near 1. Rounded before 1 is taken off, a gradient of 0.002 would be off by as
    much."""
    logits = tf.cast(np.random.default_rng(0).normal(size=(8, 8)) + 6 * np.eye(8), tf.bfloat16)
    wide = tf.cast(logits, tf.float64).numpy()
    share = np.exp(wide) / np.exp(wide).sum(-1, keepdims=True)
    labels, classes = np.array([0, 1, 2, 3, 4, 5, -1, 9]), np.eye(8)
    is_class = (labels >= 0) & (labels < 8)
    expected = np.where(is_class[:, None], share - classes[np.where(is_class, labels, 0)], 0)

    def program(x: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        narrow = mtf.to_bfloat16(x)
        loss = softmax_cross_entropy_with_logits(narrow, labels, VOCAB, check_targets=False)
        return mtf.to_float(mtf.gradients(mtf.reduce_sum(loss), narrow)[0])

    inputs = {"x": ([BATCH, VOCAB], wide.astype(np.float32)), "labels": ([BATCH], labels)}
    found = interpret(program, inputs, "rows:2;cols:2", layout).results
    np.testing.assert_allclose(found, expected, rtol=2**-8, atol=2**-20)


def test_split_vocabulary_sends_numbers_for_rows_and_not_for_classes() -> None:
    vocab = mtf.Dimension("vocab", 1024)

    def program(logits: mtf.Tensor, labels: mtf.Tensor) -> tuple[mtf.Tensor, ...]:
        loss = softmax_cross_entropy_with_logits(logits, labels, vocab)
        return loss, mtf.gradients(loss, logits)[0]

    inputs = {"logits": mtf.TensorSpec([BATCH, vocab]), "labels": mtf.TensorSpec([BATCH], tf.int32)}
    instructions = plan(program, inputs, "cols:4", "vocab:cols").instructions
    sent = [step.input.slice_shape for step in instructions if isinstance(step, Collective)]
    assert len(sent) == 3  # the maximum, the sum of exponentials, the chosen logit
    assert max(map(math.prod, sent)) == BATCH.size


def test_sigmoid_cross_entropy_keeps_small_losses() -> None:
    x, z = np.array([30.0, -30, 0, 500, -500], np.float32), np.array([1.0, 0, 1, 1, 0], np.float32)
    dim = mtf.Dimension("n", 5)

    def program(x: mtf.Tensor, z: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        loss = mtf.layers.sigmoid_cross_entropy_with_logits(x, z)
        return loss, mtf.gradients(loss, x)[0]

    loss, gradient = interpret(program, {"x": ([dim], x), "z": ([dim], z)}, "cores:1").results
    small = np.exp(-30.0)
    assert_close(loss, [small, small, np.log(2), 0, 0], terms=2 * FUNCTION_TERMS, magnitude=[small, small, 1, 0, 0])
    assert_close(gradient, [-small, small, -0.5, 0, 0], terms=2 * FUNCTION_TERMS, magnitude=[small, small, 1, 0, 0])


def test_a_class_that_cannot_be_costs_nothing_where_its_target_is_0() -> None:
    """-inf times 0, which is NaN, is nowhere; and a row that is no class has the loss 0, be all its logits -inf."""
    logits = np.array([[-math.inf, 1.0, 1.0], [-math.inf] * 3], np.float32)
    soft, hard = np.array([[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]], np.float32), np.array([1, -1], np.int32)
    vocab = mtf.Dimension("vocab", 3)

    def program(x: mtf.Tensor, soft: mtf.Tensor, hard: mtf.Tensor) -> list[mtf.Tensor]:
        losses = [
            softmax_cross_entropy_with_logits(x, soft, vocab),
            softmax_cross_entropy_with_logits(x, hard, vocab, z_loss=1.0, check_targets=False),
        ]
        return [*losses, *(mtf.gradients(loss, x)[0] for loss in losses)]

    inputs = {
        "x": ([("batch", 2), vocab], logits),
        "soft": ([("batch", 2), vocab], soft),
        "hard": ([("batch", 2)], hard),
    }
    log_z = 1.0 + math.log(2.0)
    for mesh, layout in (("cores:1", ""), ("cores:2", "batch:cores"), ("cores:3", "vocab:cores")):
        found = interpret(program, inputs, mesh, layout).results
        expected = [
            [math.log(2.0), 0.0],
            [math.log(2.0) + log_z**2, 0.0],
            [[0.0, 0.0, 0.0]] * 2,
            [[0.0, -0.5 + log_z, 0.5 + log_z], [0.0] * 3],
        ]
        for ours, exact in zip(found, expected, strict=True):
            assert_close(ours, np.array(exact), terms=4 * FUNCTION_TERMS, magnitude=4.0)


def test_sigmoid_cross_entropy_of_infinite_logits() -> None:
    x = np.array([-math.inf, math.inf, math.inf, -math.inf], np.float32)
    z = np.array([0.0, 1.0, 0.0, 0.5], np.float32)

    def program(x: mtf.Tensor, z: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        loss = mtf.layers.sigmoid_cross_entropy_with_logits(x, z)
        return loss, mtf.gradients(loss, x)[0]

    loss, gradient = interpret(program, {"x": ("n:4", x), "z": ("n:4", z)}, "cores:1").results
    np.testing.assert_array_equal(loss, [0.0, 0.0, math.inf, math.inf])
    np.testing.assert_array_equal(gradient, [0.0, 0.0, 1.0, -0.5])


def test_weights_nonzero() -> None:
    def program(ids: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.layers.weights_nonzero(ids), mtf.layers.weights_nonzero(ids, tf.int32)]

    found = interpret(program, {"ids": ([BATCH], LABELS)}, "rows:2", "batch:rows").results
    assert [weights.dtype for weights in found] == [np.float32, np.int32]
    for weights in found:
        np.testing.assert_array_equal(weights, LABELS != 0)


def check(
    targets_shape: list[mtf.Dimension], targets_dtype: tf.DType, vocab_dim: mtf.Dimension = VOCAB, **options: Any
) -> None:
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        targets = mtf.zeros(mesh, targets_shape, targets_dtype)
        softmax_cross_entropy_with_logits(mtf.zeros(mesh, [BATCH, VOCAB]), targets, vocab_dim, **options)


def test_bad_targets() -> None:
    with pytest.raises(ShapeError, match=r"targets of type float32 need the dimensions \[batch:8 vocab:8\]"):
        check([BATCH], tf.float32)
    with pytest.raises(ShapeError, match=r"targets of type int32 need the dimensions \[batch:8\]"):
        check([BATCH, VOCAB], tf.int32)
    with pytest.raises(DtypeError, match=r"floating \(a distribution\) or integer \(an index\)"):
        check([BATCH], tf.bool)


def test_bad_numbers() -> None:
    with pytest.raises(ShapeError, match=r"vocab_size is 9, and must be from 1 to the size of \[vocab:8\]"):
        check([BATCH], tf.int32, vocab_size=9)
    with pytest.raises(GraphError, match=r"label_smoothing must be in \[0, 1\], and is 10"):
        check([BATCH], tf.int32, label_smoothing=10)


def test_unknown_vocabulary() -> None:
    with pytest.raises(ShapeError, match=r'no dimension "vocabulary" .*did you mean "vocab"\?'):
        check([BATCH], tf.int32, mtf.Dimension("vocabulary", 8))


def test_sigmoid_cross_entropy_of_other_dimensions(build: Callable[..., mtf.Graph]) -> None:
    loss = mtf.layers.sigmoid_cross_entropy_with_logits
    with pytest.raises(ShapeError, match=r"need the dimensions of the logits, \[batch:8 vocab:8\], not \[batch:8\]"):
        build(lambda x: loss(x, mtf.zeros(x.mesh, [BATCH])), [BATCH, VOCAB])
    with pytest.raises(DtypeError, match=r"targets must be floating, not int32"):
        build(lambda x: loss(x, mtf.cast(x, tf.int32)), [BATCH, VOCAB])
