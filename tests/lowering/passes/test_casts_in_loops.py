"""Weights of a stack that are read in bfloat16: each layer's are converted when it is there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.planning.plan import Compute, Loop, Plan, walk

pytestmark = pytest.mark.quick

BATCH, D_MODEL, LAYERS = mtf.Dimension("batch", 4), mtf.Dimension("d_model", 16), mtf.Dimension("layers", 3)
POLICY = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
WEIGHTS = np.random.default_rng(0).normal(size=(3, 16, 16)).astype(np.float32) / 4
X = np.random.default_rng(1).normal(size=(4, 16)).astype(np.float32)


def planned(program: Any, mesh_shape: str = "rows:2", **options: Any) -> Plan:
    impl = mtf.PlanMeshImpl(mesh_shape, "batch:rows", options=mtf.MeshOptions(**options))
    inputs = {"x": mtf.TensorSpec([BATCH, D_MODEL], tf.bfloat16)}
    step = mtf.function(program, impl, inputs=inputs, variable_dtype=POLICY)
    return step.lowering.execution(step._fetches).plan


def stacked_weights(mesh: mtf.Mesh) -> mtf.Tensor:
    return mtf.get_variable(mesh, "w", [LAYERS, D_MODEL, mtf.Dimension("_d_model", 16)], initializer=WEIGHTS)


def scanned(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        y = mtf.einsum([carried[0], parts[0]], reduced_dims=[D_MODEL])
        return [mtf.tanh(mtf.rename_dimension(y, "_d_model", "d_model"))], []

    return mtf.scan(layer, x, [w], LAYERS)[0][0]


def trained(x: mtf.Tensor) -> mtf.Tensor:
    loss = mtf.reduce_mean(mtf.square(scanned(x, stacked_weights(x.mesh))))
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def in_parts(x: mtf.Tensor) -> list[mtf.Tensor]:
    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        return {"loss": mtf.reduce_mean(mtf.square(scanned(features["x"], stacked_weights(x.mesh))))}

    return mtf.serialize_training_step({"x": x}, model, BATCH, 2)[0]


def whole_casts(plan: Plan) -> list[Compute]:
    """Of the weights of all layers."""
    every = [i for i, _ in walk(plan.instructions) if isinstance(i, Compute) and i.facts.is_cast]
    return [i for i in every if i.outputs[0].shape.has("layers") and i.outputs[0].dtype == tf.bfloat16]


@pytest.mark.parametrize("program", [trained, in_parts])
def test_a_stack_is_not_converted_as_a_whole(program: Any) -> None:
    """Forward and backward, and in a loop over micro-batches, where the weights come from outside."""
    plan = planned(program)
    assert not whole_casts(plan)
    taken = [
        s for i, _ in walk(plan.instructions) if isinstance(i, Loop) for s in i.sliced if s.whole.shape.has("_d_model")
    ]
    assert len(taken) == 2
    assert {s.whole.dtype for s in taken} == {tf.float32}
    assert {s.part.slice_bytes for s in taken} == {16 * 16 * 4}


def test_a_stack_that_something_else_reads_stays_as_it_is() -> None:
    def also_summed(x: mtf.Tensor) -> list[mtf.Tensor]:
        w = stacked_weights(x.mesh)
        return [scanned(x, w), mtf.reduce_sum(w)]

    assert len(whole_casts(planned(also_summed))) == 1


def test_weights_that_are_kept_split_travel_converted() -> None:
    plan = planned(trained, parameter_layout="_d_model:rows")
    assert not whole_casts(plan)
    gathered = [c for c in plan.collectives if c.step.kind == "all_gather"]
    assert {c.input.dtype for c in gathered} == {tf.bfloat16}


def test_results_are_those_of_a_stack_converted_before() -> None:
    """Bit for bit."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        x = mtf.cast(x, tf.bfloat16)
        w = mtf.get_variable(x.mesh, "w", [LAYERS, D_MODEL, mtf.Dimension("_d_model", 16)], POLICY, WEIGHTS)
        return [mtf.cast(scanned(x, y), tf.float32) for y in (w, mtf.with_layout(w, None) * 1.0)]

    inside, before = mtf.testing.interpret(program, {"x": ("batch:4 d_model:16", X)}, "rows:2", "batch:rows").results
    np.testing.assert_array_equal(inside, before)
