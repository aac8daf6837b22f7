"""Cores neither gather weights nor make gradients further ahead than memory allows."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.lowering.emit import pacing
from meshtf.lowering.report import accounting
from meshtf.lowering.report.execution_orders import collectives_early, collectives_late
from meshtf.planning.plan import Collective, Compute, Instruction

BATCH, WIDTH, INNER = mtf.Dimension("batch", 64), mtf.Dimension("width", 256), mtf.Dimension("inner", 256)
LAYERS = 6
WEIGHT = 256 * 256 * 4  # bytes


def trained(x: mtf.Tensor) -> mtf.Tensor:
    for i in range(LAYERS):
        w = mtf.get_variable(x.mesh, f"w_{i}", [WIDTH, INNER])
        x = mtf.rename_dimension(mtf.tanh(mtf.einsum([x, w], [BATCH, INNER])), "inner", "width")
    loss = mtf.reduce_mean(mtf.square(x))
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def program(*, parameter_layout: str | None, runs: bool = False) -> mtf.Function:
    make = mtf.SpmdMeshImpl if runs else mtf.PlanMeshImpl
    mesh_impl = make("cores:2", "batch:cores", parameter_layout=parameter_layout, bucket_bytes=0)
    return mtf.function(trained, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, WIDTH])})


@pytest.fixture
def one_weight_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "MOST_AHEAD", WEIGHT)


def is_product(instruction: Instruction) -> bool:
    return isinstance(instruction, Compute) and instruction.kind == "einsum"


def gathered_before_the_first_product(order: list[Instruction]) -> int:
    first = next(n for n, i in enumerate(order) if is_product(i))
    return sum(isinstance(i, Collective) for i in order[:first])


def products_after_the_first_sum(order: list[Instruction]) -> int:
    first = next(n for n, i in enumerate(order) if isinstance(i, Collective))
    return sum(is_product(i) for i in order[first:])


@pytest.mark.usefixtures("one_weight_ahead")
def test_weights_are_not_gathered_long_before_they_are_used() -> None:
    instructions = program(parameter_layout="width:cores").lowering.plan.instructions
    assert gathered_before_the_first_product(collectives_early(instructions)) == 2


def test_nothing_waits_where_little_is_moved() -> None:
    instructions = program(parameter_layout="width:cores").lowering.plan.instructions
    assert pacing.paced(instructions) == {}
    # Collectives keep their order: the next one is the sum of a gradient.
    assert gathered_before_the_first_product(collectives_early(instructions)) == LAYERS


def test_memory_is_bounded_by_how_far_ahead_cores_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    function = program(parameter_layout="width:cores")
    free = accounting.peak_memory(function.lowering.plan).total
    monkeypatch.setattr(pacing, "MOST_AHEAD", WEIGHT)
    assert accounting.peak_memory(function.lowering.plan).total < free - 2 * WEIGHT


def test_gradients_do_not_pile_up_before_slow_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    instructions = program(parameter_layout=None).lowering.plan.instructions
    assert products_after_the_first_sum(collectives_late(instructions)) == 0
    monkeypatch.setattr(pacing, "MOST_AHEAD", WEIGHT)
    # When the first sum has to be over, two gradients are there, and the products before the third are done.
    assert products_after_the_first_sum(collectives_late(instructions)) > LAYERS
    position = {instruction: n for n, instruction in enumerate(instructions)}
    assert all(position[before] < position[after] for after, before in pacing.paced(instructions).items())


@pytest.mark.usefixtures("one_weight_ahead")
@pytest.mark.parametrize("parameter_layout", [None, "width:cores"])
def test_cores_that_wait_compute_the_same(parameter_layout: str | None) -> None:
    step = program(parameter_layout=parameter_layout, runs=True)
    assert pacing.paced(step.lowering.plan.instructions)
    x = np.random.default_rng(0).normal(size=(64, 256)).astype(np.float32)
    paced = [float(step(x=x)) for _ in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pacing, "MOST_AHEAD", 1 << 40)
        free = program(parameter_layout=parameter_layout, runs=True)
        np.testing.assert_array_equal([float(free(x=x)) for _ in range(3)], paced)
