"""Transformers whose stacks are pipelines train to the losses of the plain ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from meshtf.layers import PipelineSchedule
from meshtf.testing import assert_close
from tests.models.transformers import TERMS, case, configured
from tests.optimize.interpreted_training import InterpretedTraining

ALL_SPLIT = ("data:2;stages:2;model:2", "batch:data;stage:stages;d_ff:model;heads:model;vocab:model")


def pipelined(model: Any, schedule: PipelineSchedule) -> Any:
    stacks = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
    stacks = {name: stack for name, stack in stacks.items() if hasattr(stack, "sublayers")}
    return dataclasses.replace(
        model, **{name: dataclasses.replace(stack, pipeline=schedule) for name, stack in stacks.items()}
    )


@pytest.mark.parametrize("name", ["gpt2", "t5_1_1"])
def test_data_times_stages_times_model(name: str) -> None:
    """Packed tokens, masks by segment, dropout, relative positions, and an encoder's output as memory."""
    plain = case(name)
    split = dataclasses.replace(plain, model=pipelined(plain.model, PipelineSchedule(2, 2)))

    def losses(own: Any, mesh_shape: str, layout: str) -> list[float]:
        training = InterpretedTraining(own.training_step(), own.specs, mesh_shape, layout)
        return [training.step(**own.batch(seed)) for seed in range(2)]

    assert_close(
        losses(split, *ALL_SPLIT), losses(plain, "rows:1", ""), terms=TERMS, steps=np.arange(2), dtype="float32"
    )


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
