"""Which loops are unrolled, what is counted for that, and what a program says where it has too many instructions."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.unrolled_layers import instructions_unrolled, unroll_layers
from meshtf.lowering.report.report import Report
from meshtf.planning.plan import Loop, Plan, walk
from meshtf.testing import plan

BATCH, D, LAYERS, TURNS = (mtf.Dimension(n, s) for n, s in (("batch", 4), ("d", 8), ("layers", 3), ("turns", 40)))


def layers(x: mtf.Tensor) -> mtf.Tensor:
    """Three layers of one operation each beside the result: a sine, and its gradient in another loop."""
    (y,), _ = mtf.layer_stack(lambda carried, _: ([mtf.sin(carried[0])], []), x, LAYERS)
    return y


def gradient(x: mtf.Tensor) -> mtf.Tensor:
    (found,) = mtf.gradients([mtf.reduce_sum(layers(x))], [x])
    assert found is not None
    return found


def tokens(x: mtf.Tensor) -> mtf.Tensor:
    """Layers inside a loop that is not over layers."""
    return mtf.scan(lambda carried, _: ([layers(carried[0])], []), x, [], TURNS)[0][0]


def planned(program: object) -> Plan:
    return plan(program, {"x": mtf.TensorSpec([BATCH, D])}, "rows:2", "batch:rows")  # type: ignore[arg-type]


def loops_in(plan: Plan) -> list[Loop]:
    return [i for i, _ in walk(plan.instructions) if isinstance(i, Loop)]


def test_all_instructions_of_all_layers_are_counted() -> None:
    """Of loops over anything else, one turn."""
    for program, are_layers in ((layers, [True]), (gradient, [True, True]), (tokens, [False, True])):
        found = planned(program)
        loops = loops_in(found)
        assert [loop.unrolling is not None for loop in loops] == are_layers
        outside = sum(not isinstance(i, Loop) for i in found.instructions)
        if program is tokens:
            outer, inner = loops
            others = sum(not isinstance(i, Loop) for i in outer.body)
            expected = outside + 1 + others + 3 * len(inner.body)
        else:
            expected = outside + sum(3 * len(loop.body) for loop in loops)
        assert instructions_unrolled(found.instructions) == expected


@pytest.mark.parametrize("program", [gradient, tokens])
def test_all_loops_over_layers_are_unrolled_or_none(program: object) -> None:
    found = planned(program)
    count = instructions_unrolled(found.instructions)
    for most in (count, count - 1, 0):
        done = unroll_layers(found, PassOptions(most_instructions=most))
        notes = [loop.unrolling for loop in loops_in(done) if loop.unrolling is not None]
        assert {note.is_unrolled for note in notes} == {most == count}
        too_many = f"it would make a program of {count} instructions, and XLA compiles {most} in about a minute"
        assert {note.refusal for note in notes} == {too_many if 0 < most < count else ""}


def test_the_report_says_which_loops_are_unrolled() -> None:
    """Where the backend unrolls layers; elsewhere it does not speak of them."""

    def report(options: PassOptions, *, unroll_layers: bool = True) -> Report:
        mesh_impl = mtf.GpuMeshImpl("rows:2", "batch:rows", unroll_layers=unroll_layers)
        inputs = {"x": mtf.TensorSpec([BATCH, D])}
        return mtf.function(gradient, mesh_impl, inputs=inputs, pass_options=options).report()

    unrolled = report(PassOptions())
    assert [(r.label, r.layers, r.refusal) for r in unrolled.layers] == [("layer", 3, ""), ("gradient of layer", 3, "")]
    assert "loops over layers" in str(unrolled)
    assert not report(PassOptions(), unroll_layers=False).layers
    on_cpus = mtf.SpmdMeshImpl("rows:2", "batch:rows")
    assert not mtf.function(gradient, on_cpus, inputs={"x": mtf.TensorSpec([BATCH, D])}).report().layers
