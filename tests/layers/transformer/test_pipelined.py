"""Transformers whose stacks are pipelines train to the losses of the plain ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers import AttentionConfig, AttentionMask, DynamicRotaryScaling, PipelineSchedule, Tokens
from meshtf.layers.transformer import (
    Context,
    FeedForward,
    RelativeBias,
    Residual,
    Rotary,
    SelfAttention,
    TransformerStack,
)
from meshtf.testing import assert_close, interpret
from tests.models.transformers import TERMS, case, configured
from tests.optimize.interpreted_training import InterpretedTraining

ALL_SPLIT = ("data:2;stages:2;model:2", "batch:data;stage:stages;d_ff:model;heads:model;vocab:model")
STAGES_AND_MODEL = ("stages:2;model:2", "stage:stages;d_ff:model;heads:model;vocab:model")


def pipelined(model: Any, schedule: PipelineSchedule) -> Any:
    stacks = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    stacks = {name: stack for name, stack in stacks.items() if hasattr(stack, "sublayers")}
    return dataclasses.replace(
        model, **{name: dataclasses.replace(stack, pipeline=schedule) for name, stack in stacks.items()}
    )


@pytest.mark.parametrize(
    ("name", "split_over"),
    [
        ("t5_1_1", STAGES_AND_MODEL),
        *(pytest.param(name, ALL_SPLIT, marks=pytest.mark.long) for name in ("gpt2", "t5_1_1")),
    ],
)
def test_data_times_stages_times_model(name: str, split_over: tuple[str, str]) -> None:
    """Packed tokens, masks by segment, dropout, relative positions, and an encoder's output as memory."""
    plain = case(name)
    split = dataclasses.replace(plain, model=pipelined(plain.model, PipelineSchedule(2, 2)))

    def losses(own: Any, mesh_shape: str, layout: str) -> list[float]:
        training = InterpretedTraining(own.training_step(), own.specs, mesh_shape, layout)
        return [training.step(**own.batch(seed)) for seed in range(2)]

    assert_close(
        losses(split, *split_over), losses(plain, "rows:1", ""), terms=TERMS, steps=np.arange(2), dtype="float32"
    )


@pytest.mark.parametrize("algorithm", [pytest.param("plain", marks=pytest.mark.long), "lean"])
def test_each_layer_keeps_its_own_relative_bias(algorithm: str) -> None:
    config = AttentionConfig(num_heads=2, d_kv=4)
    attention = SelfAttention(config, algorithm=algorithm, block_size=2, bias=RelativeBias(config, 8, 6))
    plain = TransformerStack([attention], 4)
    shape = mtf.Shape([("batch", 4), ("length", 6), ("d_model", 8)])
    x = np.random.default_rng(0).standard_normal(shape.to_integer_list).astype(np.float32)

    def found(stack: TransformerStack, layout: str) -> list[np.ndarray]:
        def program(x: mtf.Tensor) -> list[mtf.Tensor]:
            y = stack(x, Context(AttentionMask(), Tokens.along(x)))
            (table,) = (v.value for v in x.graph.trainable_variables if v.name.endswith("relative_attention_bias"))
            return [y, *mtf.gradients([mtf.reduce_sum(y * y * y)], [table])]

        return interpret(program, {"x": (shape, x)}, "stages:2", layout).results

    split = dataclasses.replace(plain, pipeline=PipelineSchedule(2, 2))
    for own, known in zip(found(split, "stage:stages"), found(plain, ""), strict=True):
        assert_close(own.reshape(known.shape), known, terms=TERMS, magnitude=np.abs(known).max())


def test_each_sequence_is_rotated_by_its_own_length() -> None:
    """Each stage reads the lengths of its micro-batch."""
    rotary = Rotary(scaling=DynamicRotaryScaling(2.0, max_length=2))
    plain = TransformerStack([SelfAttention(AttentionConfig(num_heads=1, d_kv=4), rotary=rotary)], 2)
    shape = mtf.Shape([("batch", 4), ("length", 6), ("d_model", 8)])
    x = np.random.default_rng(0).standard_normal(shape.to_integer_list).astype(np.float32)

    def found(stack: TransformerStack, layout: str) -> np.ndarray:
        def program(x: mtf.Tensor, lengths: mtf.Tensor) -> mtf.Tensor:
            places = mtf.range(x.mesh, x.shape["length"])
            return stack(x, Context(AttentionMask(), Tokens.along(x), places, lengths=lengths))

        lengths = np.array([2, 6, 3, 4], np.int32)
        return interpret(program, {"x": (shape, x), "lengths": ("batch:4", lengths)}, "stages:2", layout).results

    split = dataclasses.replace(plain, pipeline=PipelineSchedule(2, 2))
    assert_close(found(split, "stage:stages"), found(plain, ""), terms=TERMS)


@pytest.mark.parametrize(
    ("num_layers", "schedule"),
    [
        pytest.param(4, PipelineSchedule(2, 2), marks=pytest.mark.long),
        (5, PipelineSchedule(2, 2)),
        (4, PipelineSchedule(2, 2, num_rounds=2)),
    ],
    ids=["4 layers", "a place left over", "2 rounds"],
)
def test_dropout_grows_in_a_pipeline_as_in_the_plain_stack(num_layers: int, schedule: PipelineSchedule) -> None:
    residual = Residual(dropout_rate=0.5, dropout_grows=True)
    plain = TransformerStack([FeedForward(16)], num_layers, residual, use_final_norm=False)
    shape = mtf.Shape([("batch", 4), ("length", 3), ("d_model", 8)])
    x = np.random.default_rng(0).standard_normal(shape.to_integer_list).astype(np.float32)

    def found(stack: TransformerStack, layout: str) -> list[np.ndarray]:
        def program(x: mtf.Tensor) -> list[mtf.Tensor]:
            y = stack(x, Context(AttentionMask(), Tokens.along(x), is_training=True))
            return [y, *mtf.gradients([mtf.reduce_sum(y * y)], [x])]

        return interpret(program, {"x": (shape, x)}, "stages:2", layout).results

    known = found(plain, "")
    for own, whole in zip(found(dataclasses.replace(plain, pipeline=schedule), "stage:stages"), known, strict=True):
        assert_close(own, whole, terms=TERMS, magnitude=np.abs(whole).max())
    alike = dataclasses.replace(plain, residual=dataclasses.replace(residual, dropout_grows=False))
    assert not np.allclose(found(alike, "")[0], known[0])


def test_sublayers_may_be_recomputed_in_a_pipeline() -> None:
    plain = case("gpt2", "dropout_rate = 0.1")
    split = pipelined(plain.model, PipelineSchedule(2, 2))
    stack = dataclasses.replace(split.stack, recompute={"self_attention": "nothing", "feed_forward": "products"})
    recomputed = dataclasses.replace(plain, model=dataclasses.replace(split, stack=stack))

    def losses(own: Any, layout: str) -> list[float]:
        training = InterpretedTraining(own.training_step(), own.specs, "stages:2", layout)
        return [training.step(**own.batch(seed)) for seed in range(2)]

    assert_close(
        losses(recomputed, "stage:stages"), losses(plain, ""), terms=TERMS, steps=np.arange(2), dtype="float32"
    )


def test_three_settings_make_a_pipeline() -> None:
    schedule = ("PipelineSchedule.num_stages = 2", "PipelineSchedule.num_microbatches = 4")
    model = configured("gpt2", "TransformerStack.pipeline = @PipelineSchedule()", *schedule)
    assert model.stack.pipeline == PipelineSchedule(2, 4)
