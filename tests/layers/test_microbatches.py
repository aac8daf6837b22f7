"""Layers in micro-batches give what they give for the whole batch, with all that is random in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import PipelineSchedule, feed_forward
from meshtf.layers.attention import AttentionConfig, AttentionMask, AttentionOptions, Tokens
from meshtf.layers.moe import Capacity, Gates, MixtureOfExperts, SwitchRouter, Top2Router
from meshtf.layers.transformer import Context, FeedForward, Residual, SelfAttention, TransformerStack
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, largest
from tests.house.sharpest import sharpest

BATCH, LENGTH, D_MODEL = mtf.Dimension("batch", 8), mtf.Dimension("length", 6), mtf.Dimension("d_model", 4)
X = np.random.default_rng(0).normal(size=[8, 6, 4]).astype(np.float32)

CONFIG, DROPPED = AttentionConfig(num_heads=2, d_kv=2), AttentionOptions(dropout_rate=0.4)
BY_MEMORY = AttentionOptions(dropout_rate=0.4, dropout_broadcast_dims=("length",))
EXPERTS = MixtureOfExperts(4, 8, SwitchRouter(), capacity=Capacity(1.5))
NOISY = dataclasses.replace(EXPERTS, router=Top2Router(), gates=Gates(jitter=0.5), dropout_rate=0.4)

NOT_SPLIT, SPLIT = ("all:1", ""), ("all:2", "batch:all;groups:all")

Layer = Callable[[mtf.Tensor], mtf.Tensor]
TERMS = (2 * 2 * (5 * D_MODEL.size + 2 * 2 + 2 * LENGTH.size + 4 + 8 + 8 * FUNCTION_TERMS), BATCH.size * LENGTH.size)
"""Through at most two layers, of attention or of experts behind a norm, and back; then a sum over all tokens."""


def stack(*sublayers: Any, dropout_rate: float = 0.0, pipeline: PipelineSchedule | None = None) -> Layer:
    """A layer of these sublayers, in training; one in each stage of a pipeline."""
    num_layers = 1 if pipeline is None else pipeline.num_stages
    layers = TransformerStack(list(sublayers), num_layers, Residual(dropout_rate=dropout_rate), pipeline=pipeline)

    def layer(x: mtf.Tensor) -> mtf.Tensor:
        tokens = Tokens(mtf.range(x.mesh, LENGTH))
        return layers(x, Context(AttentionMask(), tokens, is_training=True))

    return layer


def experts(**changed: Any) -> Layer:
    return stack(dataclasses.replace(EXPERTS, **changed))


CASES: dict[str, tuple[Layer, tuple[str, str]]] = {
    "dropout": (stack(FeedForward(8, dropout_rate=0.4), dropout_rate=0.3), SPLIT),
    "dropout of whole sequences": (
        stack(FeedForward(8, dropout_rate=0.4, dropout_broadcast_dims=["length"])), NOT_SPLIT,
    ),
    "dropout of a plain layer": (lambda x: feed_forward(x, D_MODEL, True, dropout_rate=0.4), NOT_SPLIT),
    "attention": (stack(SelfAttention(CONFIG, DROPPED)), SPLIT),
    "lean attention": (stack(SelfAttention(CONFIG, BY_MEMORY, algorithm="lean", block_size=2)), NOT_SPLIT),
    "lean attention of each weight by itself": (
        stack(SelfAttention(CONFIG, DROPPED, algorithm="lean", block_size=2)), SPLIT,
    ),
    "ring attention": (stack(SelfAttention(CONFIG, DROPPED, algorithm="ring", num_blocks=2)), SPLIT),
    "local attention": (stack(SelfAttention(CONFIG, DROPPED, window=2, algorithm="local")), NOT_SPLIT),
    "jitter": (experts(gates=Gates(jitter=0.5)), SPLIT),
    "second experts": (experts(router=Top2Router()), SPLIT),
    "dropout of experts": (experts(dropout_rate=0.4), SPLIT),
    "dropout of experts without limit": (experts(dropout_rate=0.4, capacity=None), NOT_SPLIT),
    "parts of sequences": (stack(dataclasses.replace(NOISY, group_size=3)), SPLIT),
    "experts in a pipeline": (stack(NOISY, dropout_rate=0.3, pipeline=PipelineSchedule(2, 2)), NOT_SPLIT),
    "parts of sequences in a pipeline": (
        stack(dataclasses.replace(NOISY, group_size=3), pipeline=PipelineSchedule(2, 2)), NOT_SPLIT,
    ),
}  # fmt: skip

SHARPEST = (
    "dropout of whole sequences",
    "attention",
    "lean attention of each weight by itself",
    "ring attention",
    "local attention",
    "dropout of experts",
    "parts of sequences in a pipeline",
)


def program(layer: Layer, num_splits: int) -> Callable[..., Any]:
    """What the layer gives, and the gradients of its weights."""

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        y = layer(features["x"])
        return {"loss": mtf.reduce_sum(mtf.square(y)), "y": y}

    def step(x: mtf.Tensor) -> Any:
        if num_splits > 1:
            gradients, outputs = mtf.serialize_training_step({"x": x}, model, BATCH, num_splits)
        else:
            outputs = model({"x": x})
            gradients = mtf.gradients([outputs["loss"]], [v.value for v in x.graph.trainable_variables])
        names = [v.full_name for v in x.graph.trainable_variables]
        return {"y": outputs["y"], **dict(zip(names, gradients, strict=True))}

    return step


@pytest.mark.parametrize("case", sharpest(CASES, SHARPEST))
def test_microbatches_draw_what_the_whole_batch_draws(case: str) -> None:
    layer, split = CASES[case]
    feeds = {"x": (mtf.Shape([BATCH, LENGTH, D_MODEL]), X)}
    whole = interpret(program(layer, 1), feeds, "all:1").results
    found = interpret(program(layer, 2), feeds, *split).results
    assert found.keys() == whole.keys()
    for name, value in whole.items():
        # The sum of squares of what is normalised hardly changes: its gradients are small differences of values of 1.
        assert_close(found[name], value, terms=TERMS, magnitude=max(1.0, largest(value)), what=name)


@pytest.mark.parametrize(
    "pipeline", [None, pytest.param(PipelineSchedule(2, 2), marks=pytest.mark.long)], ids=["scan", "pipeline"]
)
@pytest.mark.long
def test_lean_and_ring_attention_drop_what_the_plain_form_drops(pipeline: PipelineSchedule | None) -> None:
    """Each weight by itself, in layers whose forward pass is made again, of micro-batches."""
    feeds = {"x": (mtf.Shape([BATCH, LENGTH, D_MODEL]), X)}

    def results(algorithm: str) -> dict[str, np.ndarray]:
        attention = SelfAttention(CONFIG, DROPPED, algorithm=algorithm, block_size=2, num_blocks=2)
        layers = TransformerStack([attention], 2, pipeline=pipeline, recompute="nothing")

        def layer(x: mtf.Tensor) -> mtf.Tensor:
            tokens = Tokens(mtf.range(x.mesh, LENGTH))
            return layers(x, Context(AttentionMask(is_causal=True), tokens, is_training=True))

        return interpret(program(layer, 2), feeds, *SPLIT).results

    plain = results("plain")
    for algorithm in ("lean",) if pipeline is None else ("lean", "ring"):
        found = results(algorithm)
        for name, value in plain.items():
            assert_close(found[name], value, terms=TERMS, magnitude=max(1.0, largest(value)), what=name)
