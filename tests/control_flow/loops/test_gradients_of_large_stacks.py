"""What a core holds of the gradients of a large stack, by the plan: its share, whatever is overridden inside the stack,
in one piece or in micro-batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import meshtf as mtf
from meshtf.planning.plan import Loop, walk

pytestmark = pytest.mark.quick

BATCH, LAYERS = mtf.Dimension("batch", 1024), mtf.Dimension("layers", 80)
D_MODEL, D_FF = mtf.Dimension("d_model", 8192), mtf.Dimension("d_ff", 28672)
MESH, LAYOUT, KEPT = "rows:64;cols:8", "batch:rows;d_ff:cols", "d_model:rows;d_ff:cols"
NUM_KERNELS = 2
LAYER = NUM_KERNELS * 4 * D_MODEL.size * D_FF.size // 8
"""Bytes of a layer's kernels as a core computes with them: split over cols, whole over rows."""
SHARE = LAYERS.size * LAYER // 64
"""Bytes of what each core keeps of all kernels."""


def training_step(override: str, num_parts: int) -> Callable[[mtf.Tensor], mtf.Tensor]:
    """A stack of feed-forward layers, of whose residual connections the layout may be overridden."""

    def overridden(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(x, override) if override else x

    def layer(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        h = mtf.layers.dense(carried[0], [D_FF], use_bias=False, activation=mtf.tanh)
        y = mtf.layers.dense(h, [D_MODEL], [D_FF], use_bias=False, name="out")
        return [carried[0] + overridden(y)], []

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        (y,), _ = mtf.layer_stack(layer, overridden(features["x"]), LAYERS, recompute="nothing")
        return {"loss": mtf.reduce_sum(mtf.square(y - 1.0)) / (BATCH.size * D_MODEL.size)}

    def step(x: mtf.Tensor) -> mtf.Tensor:
        optimizer = mtf.optimize.AdamWOptimizer(1e-2)
        if num_parts == 1:
            loss = model({"x": x})["loss"]
            optimizer.minimize(loss)
            return loss
        grads, outputs = mtf.serialize_training_step({"x": x}, model, BATCH, num_parts)
        optimizer.apply_grads(grads, x.graph.trainable_variables)
        return outputs["loss"]

    return step


def planned(override: str, num_parts: int, activation_layout: str | None = None) -> mtf.Function:
    mesh_impl = mtf.PlanMeshImpl(MESH, LAYOUT, parameter_layout=KEPT, activation_layout=activation_layout)
    return mtf.function(training_step(override, num_parts), mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])})


def beside_variables(program: mtf.Function) -> int:
    """Bytes of a core at the peak, without weights, moments and batch, which are there in any case."""
    memory = program.report().memory
    assert 3 * SHARE <= memory.variables < 3 * SHARE + 1024
    return memory.peak - memory.variables - memory.feeds


@pytest.mark.parametrize("num_parts", [1, 16])
@pytest.mark.parametrize(("override", "activation_layout"), [("d_model:cols", None), ("", "d_model:cols")])
def test_an_override_inside_a_stack_leaves_gradients_in_shares(
    override: str, activation_layout: str | None, num_parts: int
) -> None:
    """A core holds at once its share of all gradients, what enters each layer, and one layer's kernels, gradients and
    activations: no more than a few shares, and about what it holds without. Gradients whole over rows are 64 shares."""
    without = beside_variables(planned("", num_parts))
    found = beside_variables(planned(override, num_parts, activation_layout))
    rows = BATCH.size // num_parts // 64
    entering, of_a_layer = 4 * rows * LAYERS.size * D_MODEL.size, 4 * 4 * rows * (D_MODEL.size + D_FF.size)
    for peak in (without, found):
        assert SHARE < peak < SHARE + entering + 2 * LAYER + of_a_layer
    assert found < without + LAYER // NUM_KERNELS


@pytest.mark.parametrize(("override", "activation_layout"), [("", None), ("d_model:cols", None), ("", "d_model:cols")])
def test_micro_batches_are_added_up_in_shares(override: str, activation_layout: str | None) -> None:
    """The sum over micro-batches is of each core's share, and a micro-batch's own gradients are added to it."""
    program = planned(override, 16, activation_layout)
    assert bytes_of_sums(program) == [SHARE // NUM_KERNELS] * NUM_KERNELS
    whole_batch = beside_variables(planned(override, 1, activation_layout))
    assert beside_variables(program) < whole_batch + LAYER // NUM_KERNELS


def test_micro_batches_of_a_kernel_outside_of_stacks_are_added_up_in_shares() -> None:
    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            y = mtf.layers.dense(features["x"], [D_FF], use_bias=False)
            return {"loss": mtf.reduce_sum(mtf.square(y))}

        grads, outputs = mtf.serialize_training_step({"x": x}, model, BATCH, 16)
        mtf.optimize.AdamWOptimizer(1e-2).apply_grads(grads, x.graph.trainable_variables)
        return [outputs["loss"]]

    mesh_impl = mtf.PlanMeshImpl(MESH, LAYOUT, parameter_layout=KEPT)
    program = mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, D_MODEL])})
    assert bytes_of_sums(program) == [4 * D_MODEL.size * D_FF.size // 512]


def bytes_of_sums(program: mtf.Function) -> list[int]:
    """Of the gradients that are added up over micro-batches, what a core holds."""
    plan = program.lowering.execution(program._fetches).plan
    (loop,) = (i for i, _ in walk(plan.instructions) if isinstance(i, Loop) and i.operation.name == "microbatches")
    return [c.result.slice_bytes for c in loop.carried if c.result.shape.has("d_ff")]
