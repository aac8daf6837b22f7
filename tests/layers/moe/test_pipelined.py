"""Experts in pipelines are those of the plain stack: routing, random bits, losses, statistics, gradients, files."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from small_mixture import BATCH, D_MODEL, LENGTH, TERMS, TOKENS, segments

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, restore
from meshtf.errors import ShapeError
from meshtf.layers import PipelineSchedule
from meshtf.layers.attention import AttentionConfig, AttentionMask, Tokens
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.moe import Capacity, ExpertChoiceRouter, Gates, MixtureOfExperts, Top2Router
from meshtf.layers.transformer import Context, FeedForward, Residual, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import TransformerLM
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret, plan

X = np.random.default_rng(0).normal(size=[BATCH.size, LENGTH.size, D_MODEL.size]).astype(np.float32)
FEEDS = {"x": (TOKENS + [D_MODEL], X), "segments": (TOKENS, segments())}

NOISY = MixtureOfExperts(4, 8, Top2Router(), Gates(jitter=0.3, z_loss=0.1), dropout_rate=0.2)
ON_THREE_AXES = ("data:2;stages:2;model:2", "batch:data;stage:stages;d_ff:model;experts:data")
EXPERTS_BESIDE = ("stages:2;model:2", "stage:stages;experts:model;slots:model")

CASES = {
    "a sequence in a group": (NOISY, PipelineSchedule(2, 2), ON_THREE_AXES),
    "a part of one": (dataclasses.replace(NOISY, group_size=2), PipelineSchedule(2, 4, 2), EXPERTS_BESIDE),
    "several": (dataclasses.replace(NOISY, group_size=2 * LENGTH.size), PipelineSchedule(4, 2), ON_THREE_AXES),
    "dropless": (dataclasses.replace(NOISY, capacity=None, group_size=15), PipelineSchedule(2, 2, 2), EXPERTS_BESIDE),
    "parts cut by a core's border": (
        dataclasses.replace(NOISY, group_size=2, use_bias=True),
        PipelineSchedule(2, 2),
        ("all:6", "groups:all"),
    ),
    "experts choose": (
        MixtureOfExperts(2, 8, ExpertChoiceRouter(1), capacity=Capacity(0.5)),
        PipelineSchedule(2, 2),
        ON_THREE_AXES,
    ),
}


def program(layer: MixtureOfExperts, schedule: PipelineSchedule | None) -> Callable[..., dict[str, mtf.Tensor]]:
    """Of a stack: what it gives and observes, the loss, its gradients."""
    stack = TransformerStack([layer], 4, Residual(dropout_rate=0.1), pipeline=schedule)

    def step(x: mtf.Tensor, segments: mtf.Tensor) -> dict[str, mtf.Tensor]:
        y, seen = stack.observed(x, Context(AttentionMask(), Tokens(segments=segments), is_training=True))
        auxiliary = mtf.reduce_sum(seen.scalars["mixture_of_experts/auxiliary_loss"])
        loss = mtf.reduce_mean(mtf.square(y)) + auxiliary
        variables = loss.graph.trainable_variables
        of_x, *grads = mtf.gradients(loss, [x, *(v.value for v in variables)])
        of_variables = {v.full_name: grad for v, grad in zip(variables, grads, strict=True)}
        return {"y": y, "loss": loss, "of_x": of_x, **seen.scalars, **of_variables}

    return step


SOME = {"parts cut by a core's border"}
"""In the short run: groups that cores cut. Each router and capacity has tests without pipelines."""


@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in SOME else [pytest.mark.long]) for c in CASES])
def test_experts_in_a_pipeline_are_those_of_the_plain_stack(case: str) -> None:
    """The router's noise, random second experts, dropout of experts; statistics over all tokens that are no padding."""
    layer, schedule, split = CASES[case]
    expected = interpret(program(layer, None), FEEDS, "all:1").results
    found = interpret(program(layer, schedule), FEEDS, *split).results
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        own = found[name].reshape(np.shape(value))
        assert_close(
            own, value, terms=(2 * 4 * (sum(TERMS) + D_MODEL.size + 2 * FUNCTION_TERMS), TOKENS.size), what=name
        )
    assert layer.capacity is None or expected["mixture_of_experts/dropped"].max() > 0.0


def built(sublayers: list[Any], schedule: PipelineSchedule) -> None:
    stack = TransformerStack(sublayers, 4, pipeline=schedule)
    context = Context(AttentionMask(), Tokens())
    plan(lambda x: stack(x, context), {"x": mtf.TensorSpec(TOKENS + [D_MODEL])}, "all:1")


def test_groups_that_micro_batches_would_cut_are_refused_with_what_fits() -> None:
    four = MixtureOfExperts(4, 8, group_size=4 * LENGTH.size)
    with pytest.raises(ShapeError) as raised:
        built([four], PipelineSchedule(2, 4))
    text = str(raised.value)
    assert '"batch:8" with 6 tokens each: mixture_of_experts works on 4 neighbours at once, and 2 times as many' in text
    assert "do not divide into 4 micro-batches; these numbers of micro-batches fit: [1, 2]" in text
    built([four, MixtureOfExperts(4, 8, group_size=2 * LENGTH.size, name="pairs")], PipelineSchedule(2, 2))


def test_groups_of_sublayers_that_do_not_divide_each_other_are_refused() -> None:
    shape = mtf.Shape([("batch", 12), LENGTH, D_MODEL])
    layers = [MixtureOfExperts(4, 8, group_size=n * LENGTH.size, name=f"of_{n}") for n in (3, 2)]
    stack = TransformerStack(layers, 4, pipeline=PipelineSchedule(2, 2))
    with pytest.raises(ShapeError, match="of_3 works on 3 neighbouring sequences at once and of_2 on 2; in a pipeline"):
        plan(lambda x: stack(x, Context(AttentionMask(), Tokens())), {"x": mtf.TensorSpec(shape)}, "all:1")


# A language model with experts in every second layer, on data x stages x model x experts.

IDS = mtf.Shape([("batch", 8), ("length", 8)])
SPECS = {f"targets{suffix}": mtf.TensorSpec(IDS, tf.int32) for suffix in ("", "_segmentation", "_position")}


ATTENTION = SelfAttention(AttentionConfig(2, 4))
EXPERTS = MixtureOfExperts(4, 8, gates=Gates(jitter=0.1, z_loss=0.01), capacity=Capacity(1.25), dropout_rate=0.1)
PAIRS = dataclasses.replace(EXPERTS, group_size=16)  # of sequences
MODEL_TERMS = 2 * (2 * (2 * (4 * 8 + 2 * 8) + 2 * (8 + 8) + 4 * 8 + 12 * FUNCTION_TERMS) + 8 + 32) + IDS.size
"""Roundings of one step: through two layers of two attentions, a feed-forward layer and experts, each behind a norm,
and through the logits; back; and a sum over all tokens."""
EVERY_SECOND = [ATTENTION, FeedForward(8), ATTENTION, PAIRS]


def model(schedule: PipelineSchedule | None, sublayers: list[Any], num_layers: int) -> TransformerLM:
    residual = Residual(dropout_rate=0.1)
    stack = TransformerStack(sublayers, num_layers, residual, recompute="nothing", pipeline=schedule)
    return TransformerLM(8, TokenEmbedding(VocabularyEmbedding(32)), stack)


def trained(lm: TransformerLM, mesh_shape: str, layout: str) -> mtf.Function:
    def step(**features: mtf.Tensor) -> dict[str, mtf.Tensor]:
        found = lm.metrics(features, is_training=True)
        values, weights = found.pop("loss")
        loss = mtf.reduce_sum(values * weights) / mtf.reduce_sum(weights)
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return {"loss": loss, **{name: x for name, (x, _) in found.items() if not x.shape.has("batch")}}

    return mtf.function(step, mtf.SpmdMeshImpl(mesh_shape, layout), SPECS, name="step", seed=1)


def batch(seed: int) -> dict[str, np.ndarray]:
    """Two examples in each row, then padding."""
    generator, places = np.random.default_rng(seed), np.arange(8)
    rows = places[:, None]
    found = np.where(places < 3 + rows % 3, 1, np.where(places < 8 - rows % 3, 2, 0)).astype(np.int32)
    starts = np.where(found == 2, 3 + rows % 3, 0)
    ids = generator.integers(2, 32, size=found.shape) * (found > 0)
    return {
        "targets": ids.astype(np.int32),
        "targets_segmentation": found,
        "targets_position": (places - starts).astype(np.int32),
    }


@pytest.fixture(name="plain", scope="module")
def _plain() -> list[Mapping[str, np.ndarray]]:
    return [
        _numbers(trained_on, seed)
        for trained_on in [trained(model(None, EVERY_SECOND, 2), "all:1", "")]
        for seed in range(20)
    ]


def _numbers(step: mtf.Function, seed: int) -> dict[str, np.ndarray]:
    return {name: np.asarray(x) for name, x in step(**batch(seed)).items()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("schedule", "layout", "num_steps"),
    [
        (PipelineSchedule(2, 2), "batch:data;stage:stages;heads:model;d_ff:model;vocab:model;experts:data", 20),
        (PipelineSchedule(2, 2), "batch:data;groups:data;stage:stages;heads:model;experts:model;slots:model", 5),
    ],
    ids=["experts on data", "experts on model"],
)
def test_data_times_stages_times_model_times_experts(
    plain: list[Mapping[str, np.ndarray]], schedule: PipelineSchedule, layout: str, num_steps: int
) -> None:
    """Losses and what is observed, on 2 x 2 x 2 virtual CPUs, are those of one core and no pipeline, step by step."""
    step = trained(model(schedule, EVERY_SECOND, 2), "data:2;stages:2;model:2", layout)
    for seed in range(num_steps):
        found = _numbers(step, seed)
        for name, value in plain[seed].items():
            assert_close(found[name], value, terms=MODEL_TERMS, steps=seed, what=f"step {seed}: {name}")
    assert plain[-1]["loss"] < 0.6 * plain[0]["loss"]


@pytest.mark.long
def test_checkpoints_move_between_four_stages_two_one_and_none(tmp_path: Path) -> None:
    cases = [
        (None, "all:1", ""),
        (PipelineSchedule(4, 4), "stages:4;data:2", "stage:stages;batch:data;experts:data"),
        (PipelineSchedule(2, 2, 2), "stages:2;model:2", "stage:stages;experts:model;slots:model"),
        (PipelineSchedule(1, 2), "all:1", ""),
        (None, "data:2", "batch:data;experts:data"),
    ]
    expected, folder = None, CheckpointFolder(tmp_path)
    for number, (schedule, mesh_shape, layout) in enumerate(cases):
        function = trained(model(schedule, [EXPERTS], 4), mesh_shape, layout)
        function.initialize()
        initial = _by_saved_name(function)
        if expected is None:
            for name in function.variables:
                function.variables[name] = function.variables[name] + 1
            expected = _by_saved_name(function)
            assert "decoder/layer_003/mixture_of_experts/wo/kernel" in expected
        else:
            restore(folder.open(number - 1), [function])
            assert any(np.any(initial[name] != value) for name, value in expected.items())
        restored = _by_saved_name(function)
        assert restored.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_array_equal(restored[name], value, err_msg=name)
        folder.save(number, function.variables, {})


def _by_saved_name(function: mtf.Function) -> dict[str, np.ndarray]:
    saved: dict[str, np.ndarray] = {}
    for name in function.variables:
        slices = function.variables.slices(name)
        whole, counts = slices.numpy(), slices.stacked_dims.ndims
        saved.update(zip(slices.saved_names, whole.reshape(-1, *whole.shape[counts:]), strict=True))
    return saved


def test_alltoalls_are_the_only_thing_that_experts_send_in_a_step() -> None:
    """Statistics and losses are summed over cores once, after all steps."""
    schedule = PipelineSchedule(2, 4)

    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        stack = TransformerStack([NOISY], 4, pipeline=schedule, recompute=None)
        y, seen = stack.observed(x, Context(AttentionMask(), Tokens(), is_training=True))
        return [y, *seen.scalars.values()]

    mesh_impl = mtf.PlanMeshImpl("data:2;stages:2", "batch:data;stage:stages;experts:data")
    report = mtf.function(step, mesh_impl, {"x": mtf.TensorSpec(TOKENS + [D_MODEL])}).report()
    often = [(c.kind, c.axes, c.times) for c in report.collectives if c.times > 1]
    once = [(c.kind, c.times) for c in report.collectives if c.times == 1]
    assert once == [("all_reduce", 1)] * len(once)
    assert len(once) <= 4  # the result, and many small sums together
    layers = schedule.num_steps * 2  # two layers in each stage
    assert often == [
        ("all_to_all", ("data",), layers),
        ("all_to_all", ("data",), layers),
        ("permute", ("stages",), schedule.num_steps),
    ]
