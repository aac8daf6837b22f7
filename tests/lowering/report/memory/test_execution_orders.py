"""The orders in which cores compute as long as they can before they wait for one another, or as short."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import meshtf as mtf
from meshtf.lowering.report.memory._execution_orders import collectives_early, collectives_late
from meshtf.planning.plan import Collective, Compute, Instruction, Plan

BATCH, WIDTH, INNER = mtf.Dimension("batch", 8), mtf.Dimension("width", 4), mtf.Dimension("inner", 4)


def plan_of(program: Callable[..., mtf.Tensor], layout: str, parameter_layout: str | None = None) -> Plan:
    mesh_impl = mtf.PlanMeshImpl("cores:2", layout, bucket_bytes=0, parameter_layout=parameter_layout)
    step = mtf.function(program, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, WIDTH])})
    return step.lowering.execution(step._fetches).plan


def trained(x: mtf.Tensor) -> mtf.Tensor:
    for i in range(3):
        w = mtf.get_variable(x.mesh, f"w_{i}", [WIDTH, INNER])
        x = mtf.rename_dimension(mtf.einsum([x, w], [BATCH, INNER]), "inner", "width")
    loss = mtf.reduce_sum(x)
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def kinds(instructions: list[Instruction] | tuple[Instruction, ...]) -> list[str]:
    """Of products and collectives."""
    products = [i for i in instructions if isinstance(i, Collective) or getattr(i, "kind", "") == "einsum"]
    return [i.step.kind if isinstance(i, Collective) else "einsum" for i in products]


def is_in_order(instructions: list[Instruction]) -> bool:
    """Whether nothing stands before what it needs."""
    made = set()
    for instruction in instructions:
        if any(v not in made for v in instruction.inputs):
            return False
        made.update(instruction.outputs)
    return True


def test_all_products_come_before_the_first_gradient_is_summed() -> None:
    plan = plan_of(trained, "batch:cores")
    planned, late = kinds(plan.instructions), kinds(collectives_late(plan))
    products = planned.count("einsum")
    assert planned.index("all_reduce") < products
    assert late == ["einsum"] * products + ["all_reduce"] * (len(planned) - products)


def test_weights_that_are_kept_split_are_all_gathered_before_the_first_product() -> None:
    plan = plan_of(trained, "batch:cores", parameter_layout="width:cores")
    planned, early = kinds(plan.instructions), kinds(collectives_early(plan))
    assert planned[:4] == ["all_gather", "einsum", "all_gather", "einsum"]
    assert early[:4] == ["all_gather", "all_gather", "all_gather", "einsum"]


@pytest.mark.parametrize("extreme", [collectives_early, collectives_late])
@pytest.mark.parametrize("layout", ["batch:cores", "inner:cores", ""])
def test_nothing_is_lost_and_nothing_comes_too_early(extreme: Callable[[Plan], list[Instruction]], layout: str) -> None:
    plan = plan_of(trained, layout)
    order = extreme(plan)
    assert is_in_order(order)
    assert set(order) == set(plan.instructions)
    assert len(order) == len(plan.instructions)
    assert [i for i in order if isinstance(i, Collective)] == plan.collectives


def test_without_collectives_nothing_moves() -> None:
    plan = plan_of(trained, "")
    assert any(isinstance(i, Compute) for i in plan.instructions)
    assert collectives_late(plan) == list(plan.instructions)


def test_a_loop_in_which_cores_meet_waits_as_well() -> None:
    layers = mtf.Dimension("layers", 2)

    def program(x: mtf.Tensor) -> mtf.Tensor:
        def body(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [carried[0] + mtf.reduce_sum(mtf.exp(carried[0]), output_shape=[WIDTH])], []

        (y,), _ = mtf.scan(body, x, [], layers)
        return mtf.reduce_sum(y) + mtf.reduce_max(mtf.sin(x))

    plan = plan_of(program, "batch:cores")
    late = collectives_late(plan)
    loop = next(n for n, i in enumerate(late) if type(i).__name__ == "Loop")
    sine = next(n for n, i in enumerate(late) if getattr(i, "kind", "") == "sin")
    assert sine < loop
