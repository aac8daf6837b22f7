"""Batches that would fit, against plans of the same programs with these batches."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.transformer import FeedForward, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.lowering.report.memory.what_fits import (
    AS_FUSED,
    BY_OPERATION,
    MemoryCount,
    fitting_batch,
    largest_texts,
    what_fits,
)
from meshtf.models import TransformerLM
from meshtf.planning.plan import Plan

pytestmark = pytest.mark.quick


def minimized(loss: mtf.Tensor) -> mtf.Tensor:
    mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
    return loss


def perceptron(batch: int, mesh: str, layout: str) -> Plan:
    def train_step(images: mtf.Tensor, rate: mtf.Tensor) -> mtf.Tensor:
        hidden = mtf.layers.dense(images, [("hidden", 256)], activation=mtf.relu, name="hidden")
        scales = mtf.import_tf_tensor(images.mesh, np.ones(10, np.float32), "classes:10")  # fed too, without a batch
        return minimized(
            mtf.reduce_mean(mtf.square(mtf.layers.dense(hidden, [("classes", 10)], name="out") * scales)) * rate
        )

    inputs = {"images": mtf.TensorSpec([("batch", batch), ("pixels", 64)]), "rate": mtf.TensorSpec([])}
    return mtf.testing.plan(train_step, inputs, mesh, layout)


def transformer(batch: int, mesh: str, layout: str) -> Plan:
    attention = SelfAttention(AttentionConfig(2, 8))
    model = TransformerLM(
        16, TokenEmbedding(VocabularyEmbedding(50)), TransformerStack([attention, FeedForward(32)], 3)
    )

    def train_step(**features: mtf.Tensor) -> mtf.Tensor:
        loss, weights = model.metrics(features, True)["loss"]
        return minimized(mtf.reduce_sum(loss * weights) / mtf.reduce_sum(weights))

    tokens = [("batch", batch), ("length", 8)]
    inputs = dict.fromkeys(("inputs", "targets"), mtf.TensorSpec(tokens, tf.int32))
    return mtf.testing.plan(train_step, {**inputs, "targets_weights": mtf.TensorSpec(tokens)}, mesh, layout)


@pytest.mark.parametrize("count", [BY_OPERATION, AS_FUSED])
@pytest.mark.parametrize(("mesh", "layout", "step"), [("all:1", "", 1), ("all:4", "batch:all", 4)])
@pytest.mark.parametrize("program", [perceptron, transformer])
def test_the_batch_that_is_named_fits_and_a_larger_one_does_not(
    program: object, mesh: str, layout: str, step: int, count: MemoryCount
) -> None:
    now = program(512, mesh, layout)
    available = count.peak(now).total * 2 // 3
    found = fitting_batch(now, count.total, available)
    assert found is not None
    assert (found.name, found.now, found.size % step) == ("batch", 512, 0)
    needed = [count.peak(program(size, mesh, layout)).total for size in (found.size, found.size + 8 * step)]
    assert needed[0] == found.needed <= available < needed[1]
    assert f'"batch" of {found.size} instead of 512 would fit' in what_fits(now, count, available)


def micro_batches(batch: int) -> Plan:
    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        def part(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            return {"loss": mtf.reduce_sum(mtf.square(mtf.layers.dense(features["x"], [("hidden", 64)], name="h")))}

        grads, outputs = mtf.serialize_training_step({"x": x}, part, x.shape[0], 4)
        mtf.optimize.SgdOptimizer(0.1).apply_grads(grads, x.graph.trainable_variables)
        return outputs["loss"]

    return mtf.testing.plan(train_step, {"x": mtf.TensorSpec([("batch", batch), ("d_in", 8)])}, "all:2", "batch:all")


def test_a_batch_is_divided_by_cores_and_micro_batches() -> None:
    available = BY_OPERATION.peak(micro_batches(64)).total * 3 // 4
    found = fitting_batch(micro_batches(64), BY_OPERATION.total, available)
    assert found is not None
    assert found.size % 8 == 0
    assert BY_OPERATION.peak(micro_batches(found.size)).total == found.needed <= available
    assert BY_OPERATION.peak(micro_batches(found.size + 8)).total > available


def test_what_is_said_where_no_batch_helps() -> None:
    plan = perceptron(512, "all:4", "batch:all")
    peak = BY_OPERATION.peak(plan)
    assert what_fits(plan, BY_OPERATION, peak.total).startswith("By the plan it would fit. The plan does not count ")
    assert fitting_batch(plan, BY_OPERATION.total, peak.variables) is None
    assert what_fits(plan, BY_OPERATION, peak.variables).startswith("Each counted once, the values at that point take ")
    text = what_fits(plan, BY_OPERATION, peak.variables * 2 // 5)
    assert text.startswith("The variables alone do not fit. Each counted once, they take ")
    assert "need at least 3 cores with as much left, and the mesh has 4. A layout or parameter_layout that" in text


def test_without_a_batch_the_fewest_cores_are_named() -> None:
    inputs = {"x": mtf.TensorSpec("rows:8 d_in:8"), "y": mtf.TensorSpec("columns:8")}
    plan = mtf.testing.plan(lambda x, y: mtf.exp(mtf.broadcast(x, "rows:8 d_in:8 columns:8")) + y, inputs, "all:1")
    assert fitting_batch(plan, BY_OPERATION.total, 2048) is None
    assert what_fits(plan, BY_OPERATION, 2048) == (
        "Each counted once, the values at that point take 4.3 KiB: split evenly, they need at least 3 cores with as "
        "much left, and the mesh has 1."
    )


def test_values_under_another_name_are_counted_in_full() -> None:
    """So the batch that is named is smaller than it would have to be, and none is said not to fit."""

    def plan_of(batch: int) -> Plan:
        other = lambda x: mtf.exp(mtf.rename_dimension(mtf.exp(x), "batch", "piped"))  # noqa: E731
        return mtf.testing.plan(other, {"x": mtf.TensorSpec([("batch", batch), ("d_in", 8)])}, "all:1")

    # At the peak there are three values of 32 bytes for each example.
    assert fitting_batch(plan_of(64), BY_OPERATION.total, 64 * 32) is None
    found = fitting_batch(plan_of(64), BY_OPERATION.total, 160 * 32)
    assert found is not None
    assert (found.size, found.needed) == (48, (2 * 48 + 64) * 32)
    assert BY_OPERATION.peak(plan_of(48)).total == 3 * 48 * 32


def test_largest_values_are_described() -> None:
    texts = largest_texts(perceptron(512, "all:4", "batch:all"), BY_OPERATION, 2)
    assert texts[0].startswith("128.0 KiB ")
    assert texts[0].endswith(" [batch:512/all hidden:256] float32")
