"""Along which mesh axes cores hold different slices. That they hold the same along others, the interpreter looks at for
every value of every program that it runs."""

from __future__ import annotations

import meshtf as mtf
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.plan import Compute, Loop, Plan, Value, walk

BATCH, D_MODEL, D_FF = mtf.Dimension("batch", 8), mtf.Dimension("d_model", 64), mtf.Dimension("d_ff", 512)
LAYERS = mtf.Dimension("layers", 3)
EVERYWHERE = frozenset({"rows", "cols"})


def layer(x: mtf.Tensor) -> mtf.Tensor:
    """A norm and a residual sum, which are whole along `cols`, and two products, which are split."""
    w = mtf.get_variable(x.mesh, "w", [D_MODEL, D_FF])
    v = mtf.get_variable(x.mesh, "v", [D_FF, D_MODEL])
    y = x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=D_MODEL) + 1e-6)
    return x + mtf.einsum([mtf.relu(mtf.einsum([y, w], [BATCH, D_FF])), v], [BATCH, D_MODEL])


def plan_of(step: object, layout: str = "batch:rows") -> Plan:
    mesh_impl = mtf.PlanMeshImpl("rows:2;one:1;cols:4", layout)
    function = mtf.function(step, mesh_impl, {"x": mtf.TensorSpec([BATCH, D_MODEL])})  # type: ignore[arg-type]
    return function.lowering.execution([function.results]).plan


def differing(plan: Plan) -> DifferingSlices:
    return DifferingSlices(PlanFacts.of(plan, writes_in_place=True))


def test_what_splits_a_value_or_is_to_be_summed_and_nothing_else() -> None:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_mean(mtf.square(layer(x)))

    plan = plan_of(step, "batch:rows;d_ff:cols")
    slices = differing(plan)
    by_kind: dict[str, set[frozenset[str]]] = {}
    for i in plan.instructions:
        if isinstance(i, Compute):
            by_kind.setdefault(i.kind, set()).add(slices.axes_of(i))
    assert by_kind["rsqrt"] == {frozenset({"rows"})}
    assert by_kind["relu"] == {EVERYWHERE}
    (of_cols,) = [c for c in plan.collectives if c.step.axes == ("cols",)]
    assert slices.axes_of_value(of_cols.input) is None
    assert slices.axes_of_value(of_cols.output) == ("rows",)
    assert slices.axes_of_value(plan.fetches[0]) == ()


def test_a_maximum_differs_until_it_is_reduced() -> None:
    plan = plan_of(lambda x: mtf.reduce_max(x))
    slices = differing(plan)
    (reduction,) = plan.collectives
    assert not reduction.input.pending
    assert slices.axes_of_value(reduction.input) == ("rows",)
    assert slices.axes_of_value(reduction.output) == ()


def test_of_a_loop_what_differs_as_an_iteration_ends() -> None:
    """What is carried begins alike on all cores. A user's function makes of it what nobody knows."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        def turn(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            whole, part, own = carried
            made = mtf.slicewise(lambda y: 2.0 * y, [own], grad_function=lambda _, dy: [dy])
            return [mtf.tanh(whole), part + mtf.tanh(whole + x), mtf.tanh(own) + made], []

        zeros = [mtf.zeros(x.mesh, shape) for shape in ([D_MODEL], [BATCH, D_MODEL], [D_MODEL])]
        (whole, part, own), _ = mtf.scan(turn, zeros, [], LAYERS)
        return mtf.reduce_sum(part + whole + own)

    plan = plan_of(step)
    slices = differing(plan)
    carried = loop_of(plan).carried
    assert [slices.axes_of_value(c.entering) for c in carried] == [(), ("rows",), None]
    assert [slices.axes_of_value(c.result) for c in carried] == [(), ("rows",), None]


def loop_of(plan: Plan) -> Loop:
    return next(i for i in plan.instructions if isinstance(i, Loop))


def test_sums_that_are_written_where_they_lie_are_of_each_core() -> None:
    """Of micro-batches and layers, in a loop that all cores with the same part of the batch would go through alike."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        def loss(own: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
            (y,), _ = mtf.layer_stack(lambda carried, _: ([squared(carried[0])], []), own["x"], LAYERS)
            return {"loss": mtf.reduce_sum(y)}

        (gradient,), _ = mtf.serialize_training_step({"x": x}, loss, BATCH, 2)
        return gradient

    def squared(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [D_MODEL, mtf.Dimension("other", 512)])
        return x + mtf.reduce_sum(mtf.square(mtf.einsum([x, w], reduced_dims=[D_MODEL])), reduced_dim="other")

    plan = plan_of(step)
    slices = differing(plan)
    own = [i for i, _ in walk(plan.instructions) if isinstance(i, Compute) and isinstance(i.emit, Zeros | AddToPart)]
    values: list[Value] = [v for i in own for v in i.outputs]
    assert values
    assert {slices.axes_of_value(v) for v in values} == {None}
