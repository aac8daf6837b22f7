"""What a program that does not fit is advised to do."""

from __future__ import annotations

import functools

import pytest

import meshtf as mtf
from meshtf.lowering.ahead.advice import advice
from meshtf.lowering.ahead.changes import Change
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory
from meshtf.planning.plan import Plan

pytestmark = pytest.mark.quick


@functools.cache
def plan_with(change: Change) -> Plan:
    """Of layers whose activations take most, and whose weights are not negligible."""

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        def layer(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            hidden = mtf.layers.dense(carried[0], [("d_ff", 2048)], activation=mtf.gelu)
            return [carried[0] + mtf.layers.dense(hidden, [x.shape[1]], name="wo")], []

        (y,), _ = mtf.layer_stack(layer, x, ("layers", 16), recompute=change.layers_keep)
        loss = mtf.reduce_mean(y)
        mtf.optimize.AdamWOptimizer(1e-3).minimize(loss)
        return loss

    mesh_impl = mtf.PlanMeshImpl(
        "all:8", "batch:all", shard_weight_update=False, parameter_layout=change.parameter_layout
    )
    step = mtf.function(train_step, mesh_impl, {"x": mtf.TensorSpec("batch:65536 d_model:512")})
    return step.lowering.plan_for([step.results])


SPLIT, COSTLY, NOTHING = Change("d_ff:all"), Change(layers_keep="costly"), Change(layers_keep="nothing")
BOTH = Change("d_ff:all", "nothing")


@pytest.mark.parametrize(
    ("least", "said", "fitting"),
    [(SPLIT, "these would fit: ", [SPLIT, COSTLY]), (NOTHING, "these would fit: ", [NOTHING])]
    + [(BOTH, "these would fit: ", [BOTH]), (None, "it would not fit with ", [])],
)
def test_what_helps_is_said_with_what_it_needs(least: Change | None, said: str, fitting: list[Change]) -> None:
    needed = {change: compiled_peak_memory(plan_with(change)).total for change in (SPLIT, COSTLY, NOTHING, BOTH)}
    available = 2**20 if least is None else needed[least]
    text = advice(plan_with(Change()), 2**19, available, plan_with)
    listed = [f"{change} ({needed[change] / 2**30:.3g} GiB)" for change in fitting]
    # Where both changes are needed, the weights leave no room for any batch.
    rest = '; "batch" of ' if least in (SPLIT, NOTHING) else ".\nOtherwise, a larger topology, "
    last = "either, but would need " if least is None else "; ".join(listed) + rest
    assert text.startswith(f"By the plan {said}")
    assert last in text


def test_a_program_that_nobody_can_trace_again_is_advised_of_layouts() -> None:
    available = compiled_peak_memory(plan_with(SPLIT)).total
    text = advice(plan_with(Change()), 2**19, available, lambda c: None if c.layers_keep else plan_with(c))
    assert text.startswith('By the plan these would fit: parameter_layout="d_ff:all" (')
    assert "recompute=" not in text
