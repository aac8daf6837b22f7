"""A stack whose weights are kept split over cores that compute with them whole: fully sharded data parallelism."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import meshtf as mtf
from meshtf.planning.plan import Loop, walk
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 8), mtf.Dimension("d_model", 32), mtf.Dimension("d_ff", 64)
LAYERS, STEPS = mtf.Dimension("layers", 6), mtf.Dimension("steps", 3)
X = np.random.default_rng(0).normal(size=(8, 32)).astype(np.float32)
INPUTS = {"x": mtf.TensorSpec([BATCH, D_MODEL])}
KERNEL_BYTES = 4 * LAYERS.size * D_MODEL.size * D_FF.size
TERMS = (2 * LAYERS.size * (D_MODEL.size + D_FF.size + FUNCTION_TERMS), BATCH.size, 4 * FUNCTION_TERMS)
"""Roundings of one step: through the layers and back, a sum over the batch, and the update of each element."""


def added(x: mtf.Tensor) -> mtf.Tensor:
    """What a layer adds to x."""
    h = mtf.layers.dense(x, [D_FF], use_bias=False, activation=mtf.tanh)
    return mtf.layers.dense(h, [D_MODEL], [D_FF], use_bias=False, name="out")


def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    return [carried[0] + added(carried[0])], []


def stack(x: mtf.Tensor, **options: Any) -> mtf.Tensor:
    return mtf.layer_stack(layer, x, LAYERS, **options)[0][0]


def training_step(recompute: str | None = None) -> Callable[[mtf.Tensor], mtf.Tensor]:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(mtf.square(stack(x, recompute=recompute) - 1.0))
        mtf.optimize.AdamWOptimizer(1e-2, epsilon=1e-3).minimize(loss)
        return loss

    return step


def overridden(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
    """The layer between residual connections that are split over `cols`."""
    return [carried[0] + mtf.with_layout(added(carried[0]), "d_model:cols")], []


def step_with_overrides(x: mtf.Tensor) -> mtf.Tensor:
    (y,), _ = mtf.layer_stack(overridden, mtf.with_layout(x, "d_model:cols"), LAYERS, recompute="nothing")
    loss = mtf.reduce_mean(mtf.square(y - 1.0))
    mtf.optimize.AdamWOptimizer(1e-2, epsilon=1e-3).minimize(loss)
    return loss


def step_in_parts(x: mtf.Tensor) -> mtf.Tensor:
    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        return {"loss": mtf.reduce_sum(mtf.square(stack(features["x"], recompute="nothing") - 1.0)) / X.size}

    grads, outputs = mtf.serialize_training_step({"x": x}, model, BATCH, 2)
    mtf.optimize.AdamWOptimizer(1e-2, epsilon=1e-3).apply_grads(grads, x.graph.trainable_variables)
    return outputs["loss"]


def made(
    fn: Callable[..., Any], mesh_shape: str, layout: str, parameter_layout: str | None, name: str = "step"
) -> mtf.Function:
    mesh_impl = mtf.SpmdMeshImpl(mesh_shape, layout, parameter_layout=parameter_layout)
    return mtf.function(fn, mesh_impl, inputs=INPUTS, name=name)


@functools.cache
def one_core() -> tuple[list[float], dict[str, np.ndarray]]:
    """Losses of two steps, and the variables after them."""
    step = made(training_step(), "rows:1", "", None)
    return [float(step(x=X)) for _ in range(2)], {name: step.variables[name] for name in step.variables}


@pytest.mark.parametrize(
    ("mesh_shape", "layout", "parameter_layout", "recompute"),
    [
        pytest.param("rows:4", "batch:rows", "d_model:rows", None, marks=pytest.mark.long),
        ("rows:2;cols:2", "batch:rows;d_ff:cols", "d_model:rows;d_ff:cols", "nothing"),
        pytest.param("rows:2", "batch:rows", "layers:rows", "nested", marks=pytest.mark.long),
    ],
)
def test_training_is_that_of_one_core(
    mesh_shape: str, layout: str, parameter_layout: str, recompute: str | None
) -> None:
    losses, variables = one_core()
    many = made(training_step(recompute), mesh_shape, layout, parameter_layout)
    assert_close([many(x=X) for _ in losses], losses, terms=TERMS, steps=np.arange(len(losses)), dtype="float32")
    for name, value in variables.items():
        assert_close(many.variables[name], value, terms=TERMS, steps=len(losses), what=name)


@pytest.mark.parametrize("step", [step_with_overrides, pytest.param(step_in_parts, marks=pytest.mark.long)])
def test_gradients_are_held_as_their_weights_are_kept(step: Callable[[mtf.Tensor], mtf.Tensor]) -> None:
    """Behind overrides inside the stack, and summed over micro-batches: no core has more than its part of one."""
    parameter_layout = "d_model:rows;d_ff:cols"
    program = made(step, "rows:2;cols:2", "batch:rows;d_ff:cols", parameter_layout)
    losses, variables = one_core()
    assert_close([program(x=X) for _ in losses], losses, terms=TERMS, steps=np.arange(len(losses)), dtype="float32")
    for name, value in variables.items():
        assert_close(program.variables[name], value, terms=TERMS, steps=len(losses), what=name)
    loops = [i for i, _ in walk(program.lowering.execution(program._fetches).plan.instructions) if isinstance(i, Loop)]
    made_by_loops = [v for i in loops for v in (*(s.whole for s in i.stacked), *(c.result for c in i.carried))]
    gradients = [v for v in made_by_loops if v.shape.has("layers") and v.shape.has("d_ff")]
    assert len(gradients) == 2 * (1 + (step is step_in_parts))  # of each kernel; of a part of the batch and of all
    assert {v.slice_bytes for v in gradients} == {KERNEL_BYTES // 4}


def test_in_parts_of_the_batch() -> None:
    def step(x: mtf.Tensor) -> dict[str, mtf.Tensor]:
        def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            return {"loss": mtf.reduce_sum(mtf.square(stack(features["x"])))}

        grads, _ = mtf.serialize_training_step({"x": x}, model, BATCH, 2)
        return dict(zip((v.full_name for v in x.graph.trainable_variables), grads, strict=True))

    inputs = {"x": (mtf.Shape([BATCH, D_MODEL]), X)}
    one = interpret(step, inputs, "rows:1").results
    many = interpret(step, inputs, "rows:2", "batch:rows", parameter_layout="d_model:rows").results
    for name, value in one.items():
        assert_close(many[name], value, terms=TERMS, what=name)


@pytest.mark.parametrize("recompute", [None, "nothing"])
def test_no_core_holds_more_of_the_weights_than_one_layer(recompute: str | None) -> None:
    """Both kernels are gathered layer by layer, forward and backward, and their gradients scattered layer by layer."""
    report = made(training_step(recompute), "rows:4", "batch:rows", "d_model:rows").report()
    sent = {(c.kind, c.times): 0.0 for c in report.collectives}
    for c in report.collectives:
        sent[c.kind, c.times] += c.bytes_sent
    once = 2 * KERNEL_BYTES * 3 / 4
    assert {key for key in sent if key[0] != "all_reduce"} == {
        ("all_gather", LAYERS.size),
        ("reduce_scatter", LAYERS.size),
    }
    assert sent["all_gather", LAYERS.size] == pytest.approx(2 * once, rel=0.01)
    assert sent["reduce_scatter", LAYERS.size] == pytest.approx(once, rel=0.01)
    share, whole_layer = 2 * KERNEL_BYTES / 4, 2 * KERNEL_BYTES / LAYERS.size
    kept_and_new = 2 * 3 * share  # weights and two moments, before and after the step
    activations = 4 * math.prod([2, D_FF.size + D_MODEL.size, LAYERS.size])
    assert report.memory.peak < kept_and_new + share + whole_layer + 2 * activations


def test_weights_split_by_layer_are_gathered_once() -> None:
    report = made(training_step("nothing"), "rows:2", "batch:rows", "layers:rows").report()
    assert {c.times for c in report.collectives} == {1}


def test_a_loop_around_the_stack_does_not_gather_again() -> None:
    def tokens(x: mtf.Tensor) -> mtf.Tensor:
        def step(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [stack(carried[0])], []

        return mtf.scan(step, x, [mtf.range(x.mesh, STEPS)], STEPS)[0][0]

    collectives = made(tokens, "rows:4", "batch:rows", "d_model:rows").report().collectives
    assert {(c.kind, c.times) for c in collectives} == {("all_gather", 1)}
    assert sum(c.bytes_sent for c in collectives) == pytest.approx(2 * KERNEL_BYTES * 3 / 4)
