"""Training steps of every shipped model compiled by the TPU's own compiler, for 8 to 2,048 cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import tensorflow as tf
from test_further_models import EXPERT_LAYOUTS, IMAGES, RESNET_LAYOUTS, STAGE_LAYOUTS, TOKENS, resnet_step, stacked_step
from test_training import MODEL_LAYOUTS

import meshtf as mtf
from meshtf.train.configuration import find_gin_file, read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.step_programs import training_step
from meshtf.train.training import configured_training
from tests.house.by_kind import by_kind
from tests.models.transformers import MODELS, case

TOPOLOGIES = ["v5e:2x4", "v4:2x2x2", "v5p:2x2x2"]


def compiles(
    fn: Callable[..., Any], specs: Mapping[str, mtf.TensorSpec], mesh: str, layout: str, topology: str, **options: Any
) -> None:
    step = mtf.function(fn, mtf.PlanMeshImpl(mesh, layout, **options), inputs=specs)
    memory = step.compile(topology).memory
    assert memory.peak < memory.available


def model_compiles(name: str, number: int, topology: str) -> None:
    mesh, layout, options = MODEL_LAYOUTS[number]
    compiles(case(name).training_step(), case(name).specs, mesh, layout, topology, **options)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "topology"), by_kind(MODELS, TOPOLOGIES))
def test_each_model(name: str, topology: str) -> None:
    for number in (0, 1, 4):  # weights whole, kept split, and split everywhere
        model_compiles(name, number, topology)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("layout", [RESNET_LAYOUTS[0], RESNET_LAYOUTS[2]])
def test_residual_network(layout: str, topology: str) -> None:
    specs = {"images": mtf.TensorSpec(IMAGES), "labels": mtf.TensorSpec(IMAGES[:1], tf.int32)}
    compiles(resnet_step, specs, "rows:2;cols:4", layout, topology)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize(("kind", "layout"), [("experts", EXPERT_LAYOUTS[1]), ("stages", STAGE_LAYOUTS[2])])
def test_experts_and_pipelines(kind: str, layout: str, topology: str) -> None:
    specs = {"targets": mtf.TensorSpec(TOKENS, tf.int32)}
    compiles(stacked_step(kind), specs, "rows:4;cols:2", layout, topology)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("parameter_layout", ["", "d_ff:cols", "d_model:rows"])
@pytest.mark.parametrize(
    ("rows", "d_model", "topology"), [(8, 124, "v5e:8x8"), (32, 120, "v4:4x8x8"), (256, 1000, "v5p:8x16x16")]
)
def test_many_cores(rows: int, d_model: int, topology: str, parameter_layout: str) -> None:
    """With weights whole, split, and split with padding."""
    bindings = [f"Training.mesh_shape='rows:{rows};cols:8'", f"Training.batch_size={rows}", f"d_model={d_model}"]
    bindings += ["AttentionConfig.num_heads=8"]
    bindings += [f"Training.parameter_layout='{parameter_layout}'"] * bool(parameter_layout)
    read_configuration([find_gin_file("lm_tiny.gin")], [Parameter("", binding) for binding in bindings])
    training = configured_training()
    impl = mtf.PlanMeshImpl(training.mesh_shape, training.layout, options=training.mesh_options)
    compiled = training_step(training, impl).compile(topology)
    assert compiled.cores == rows * 8
    assert compiled.memory.peak < compiled.memory.available
