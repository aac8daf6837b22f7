"""Fully sharded data parallelism of layers that stand in the program one by one: no weight stays whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import meshtf as mtf
from meshtf.planning.plan import Collective, Plan, ReadVariable
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.optimize.interpreted_training import InterpretedTraining

BATCH, WIDTH, INNER = mtf.Dimension("batch", 8), mtf.Dimension("width", 4), mtf.Dimension("inner", 4)
LAYERS = 5
X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)


def trained(x: mtf.Tensor) -> mtf.Tensor:
    for i in range(LAYERS):
        w = mtf.get_variable(x.mesh, f"w_{i}", [WIDTH, INNER])
        x = mtf.rename_dimension(mtf.tanh(mtf.einsum([x, w], [BATCH, INNER])), "inner", "width")
    loss = mtf.reduce_mean(mtf.square(x))
    mtf.optimize.AdamWOptimizer(0.1).minimize(loss)
    return loss


def tied(x: mtf.Tensor) -> mtf.Tensor:
    """The first weight is used again at the end, and an elementwise product uses two weights at once."""
    first, second = (mtf.get_variable(x.mesh, name, [WIDTH, INNER]) for name in ("first", "second"))
    y = mtf.rename_dimension(mtf.einsum([x, first], [BATCH, INNER]), "inner", "width")
    y = mtf.rename_dimension(mtf.einsum([y, second], [BATCH, INNER]), "inner", "width")
    loss = mtf.reduce_mean(mtf.square(mtf.einsum([y, first * second], [BATCH, INNER])))
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def plan_of(program: Callable[..., mtf.Tensor], parameter_layout: str | None) -> Plan:
    mesh_impl = mtf.PlanMeshImpl("cores:2", "batch:cores", parameter_layout=parameter_layout)
    return mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, WIDTH])}).lowering.plan


def gathered(plan: Plan) -> list[str]:
    """The names of the variables that are gathered, in order."""
    names = {i.output: i.name for i in plan.instructions if isinstance(i, ReadVariable)}
    found = []
    for instruction in plan.instructions:
        if isinstance(instruction, Collective) and instruction.step.kind == "all_gather":
            found.append(names[instruction.input])
    return found


def test_each_weight_is_gathered_for_the_forward_and_for_the_backward_pass() -> None:
    forward = [f"w_{i}" for i in range(LAYERS)]
    # The last is still there, and no gradient needs the first.
    assert gathered(plan_of(trained, "width:cores")) == [*forward, *reversed(forward[1:-1])]


def test_no_more_than_one_is_there_at_a_time() -> None:
    plan = plan_of(trained, "width:cores")
    made_at = {v: n for n, i in enumerate(plan.instructions) for v in i.outputs if isinstance(i, Collective)}
    whole = {v for v in made_at if v.slice_shape == (4, 4) and not v.pending and v.dtype.is_floating}
    last = {v: n for n, i in enumerate(plan.instructions) for v in i.inputs if v in whole}
    for position in range(len(plan.instructions)):
        assert sum(made_at[v] <= position < last[v] for v in whole) <= 1


def test_where_it_is_kept_whole_nothing_is_gathered_to_be_used() -> None:
    plan = plan_of(trained, None)
    assert not [i for i in plan.collectives if i.step.kind == "all_gather" and not i.operation.has_side_effect]


@pytest.mark.parametrize("program", [trained, tied])
@pytest.mark.parametrize("parameter_layout", ["width:cores", "inner:cores"])
def test_losses_and_weights_are_those_of_one_core(program: Callable[..., mtf.Tensor], parameter_layout: str) -> None:
    specs = {"x": mtf.TensorSpec([BATCH, WIDTH])}
    one = InterpretedTraining(program, specs, "cores:1", "")
    many = InterpretedTraining(program, specs, "cores:2", "batch:cores", parameter_layout)
    terms = 2 * LAYERS * (WIDTH.size + INNER.size + FUNCTION_TERMS) + BATCH.size
    for number in range(3):
        assert_close(many.step(x=X), one.step(x=X), terms=terms, dtype="float32", steps=number)
