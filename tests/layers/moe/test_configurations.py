"""The published mixtures of experts: sizes, and the largest of GShard's lowered for 2048 cores on paper."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import gin
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.models import EncoderDecoder
from meshtf.testing import build
from meshtf.train.configuration import find_gin_file, read_configuration
from tests.house.sharpest import sharpest

BILLION = 10**9
LENGTH = mtf.Dimension("length", 1024)

PUBLISHED = {
    "gshard_12b": 12.5,
    "gshard_37b": 37,
    "gshard_50b": 50,
    "gshard_150b": 150,
    "gshard_200b": 200,
    "gshard_600b": 600,
    "switch_base": 7.41,
    "switch_large": 26,
    "switch_xxl": 395,
    "switch_c": 1571,
}
"""Billions of parameters."""


@pytest.fixture(autouse=True)
def _clean_configuration() -> Iterator[None]:
    gin.clear_config()
    yield
    gin.clear_config()


def configured(name: str, *parameters: str) -> EncoderDecoder:
    read_configuration([find_gin_file(f"{name}.gin")], parameters)
    return gin.get_configurable("EncoderDecoder")()


def inputs(batch_size: int) -> Mapping[str, mtf.TensorSpec]:
    spec = mtf.TensorSpec([mtf.Dimension("batch", batch_size), LENGTH], tf.int32)
    return {"inputs": spec, "targets": spec}


@pytest.mark.parametrize("name", sharpest(PUBLISHED, ["switch_c"]))
def test_a_published_model_has_as_many_parameters_as_published(name: str) -> None:
    model = configured(name)

    def loss(**features: mtf.Tensor) -> mtf.Tensor:
        return model.metrics(features, True)["loss"][0]

    graph, _ = build(loss, inputs(1024))
    count = sum(variable.unpadded_shape.size for variable in graph.trainable_variables)
    assert count / BILLION == pytest.approx(PUBLISHED[name], rel=0.07)


def test_the_model_of_600_billion_is_lowered_for_2048_cores() -> None:
    model = configured("gshard_600b", "TransformerStack.recompute = 'nothing'")

    def train_step(**features: mtf.Tensor) -> mtf.Tensor:
        values, weights = model.metrics(features, True)["loss"]
        loss = mtf.reduce_sum(values * weights) / mtf.reduce_sum(weights)
        mtf.optimize.AdafactorOptimizer().minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl("all:2048", "batch:all;experts:all")
    step = mtf.function(train_step, mesh_impl, inputs=inputs(4096))
    count = sum(variable.unpadded_shape.size for variable in step.graph.trainable_variables)
    assert count / BILLION == pytest.approx(PUBLISHED["gshard_600b"], rel=0.07)
    report = step.report()
    kernels = [v for v in report.variables if "mixture_of_experts/w" in v.name and v.name.endswith("/kernel")]
    assert sum(v.bytes_whole for v in kernels) == 18 * 2048 * 2 * 1024 * 8192 * 4
    assert all(v.bytes_per_core == v.bytes_whole // 2048 for v in kernels)
    assert report.memory.variables < 5 * 2**30
    assert report.memory.peak < 16 * 2**30  # what a core has
    alltoalls = [c for c in report.collectives if c.kind == "all_to_all"]
    there_and_back, passes = 2, 3  # forward, forward again, backward
    assert sum(c.times for c in alltoalls) == 18 * there_and_back * passes


def test_three_settings_make_a_pipeline_of_the_small_model() -> None:
    """Experts on the axis of the data: tokens travel to them and back, and to the next stage."""
    settings = [
        "TransformerStack.pipeline = @PipelineSchedule()",
        "PipelineSchedule.num_stages = 2",
        "PipelineSchedule.num_microbatches = 4",
        "PipelineSchedule.num_rounds = 1",
    ]
    read_configuration([find_gin_file("moe_tiny.gin")], settings)
    model = gin.get_configurable("TransformerLM")()

    def loss(**features: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_mean(model.metrics(features, True)["loss"][0])

    layout = "batch:data;experts:data;stage:stages;heads:model;d_ff:model;vocab:model"
    tokens = mtf.TensorSpec([mtf.Dimension("batch", 32), mtf.Dimension("length", 256)], tf.int32)
    report = mtf.function(
        loss, mtf.PlanMeshImpl("data:2;stages:2;model:2", layout), inputs={"targets": tokens}
    ).report()
    in_each_step = {(c.kind, c.axes) for c in report.collectives if c.times == 5}
    assert in_each_step == {("all_to_all", ("data",)), ("permute", ("stages",)), ("all_reduce", ("model",))}
