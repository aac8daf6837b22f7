"""What nobody reads of loops and branches is neither computed nor kept; what they do besides is still done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import NonFiniteError
from meshtf.layers import PipelineSchedule, pipeline
from meshtf.lowering.report import accounting
from meshtf.lowering.report.memory.peak_memory import peak_memory
from meshtf.planning.plan import Branch, Loop, Plan, Value, walk
from meshtf.testing import FUNCTION_TERMS, assert_close, assert_layout_invariant, interpret, largest, terms_of
from meshtf.testing import plan as plan_on_paper

TURNS, LAYERS, BATCH, D = (
    mtf.Dimension(name, size) for name, size in (("turns", 2), ("layers", 8), ("batch", 8), ("d", 4))
)
SPECS = {"x": mtf.TensorSpec([BATCH, D]), "w": mtf.TensorSpec([LAYERS, D])}
RNG = np.random.default_rng(5)
INPUTS: dict[str, Any] = {
    "x": ([BATCH, D], RNG.normal(size=(8, 4)).astype(np.float32)),
    "w": ([LAYERS, D], RNG.normal(size=(8, 4)).astype(np.float32)),
}
SIZE = largest(*(array for _, array in INPUTS.values()))
LAYOUTS = ["", "batch:rows;d:cols", "d:rows+cols", "layers:rows;batch:cols"]

Program = Callable[..., Any]
Scanned = tuple[list[mtf.Tensor], list[mtf.Tensor]]


def layers_of(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """A scan whose gradient needs, of each layer, what enters it and the hyperbolic tangent."""
    return mtf.scan(lambda c, p: ([c[0] + mtf.tanh(c[0] * p[0])], []), x, w, LAYERS, name="inner")[0][0]


def scan_of_scans(recompute: str) -> Program:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.scan(lambda c, _: ([layers_of(c[0], w)], []), x, [], TURNS, recompute=recompute)[0][0]

    return program


def nested_segments(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    body = lambda c, p: ([c[0] + mtf.tanh(c[0] * p[0])], [])  # noqa: E731
    return mtf.scan(body, x, w, LAYERS, recompute="nested", name="inner")[0][0]


def recomputed_block(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    return mtf.recompute_grad(lambda y: layers_of(mtf.sin(y), w), x)


def recomputed_twice(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    def turn(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Scanned:
        return [recomputed_block(carried[0], w)], []

    return mtf.scan(turn, x, [], TURNS, recompute="nothing")[0][0]


def piped(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    def layer(carried: list[mtf.Tensor], beside: list[mtf.Tensor]) -> list[mtf.Tensor]:
        scale = mtf.get_variable(x.mesh, "scale", [D])
        return [carried[0] + mtf.tanh(carried[0] * scale)]

    return pipeline(layer, x, LAYERS, PipelineSchedule(2, 4), recompute="nothing", name="outer")[0] * mtf.reduce_sum(w)


RECOMPUTED = {
    "nothing kept": scan_of_scans("nothing"),
    "segments": nested_segments,
    "a block": recomputed_block,
    "a block in a loop": recomputed_twice,
    "a pipeline": piped,
}


def with_gradients(program: Program) -> Program:
    def both(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = program(x, w)
        return [y, *mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x, w])]

    return both


def loops_of(plan: Plan) -> list[Loop]:
    return [i for i, _ in walk(plan.instructions) if isinstance(i, Loop)]


def unread(plan: Plan) -> set[Value]:
    """Results of loops and branches that no instruction uses, and no loop or branch returns."""
    made = {v for i, _ in walk(plan.instructions) if isinstance(i, Loop | Branch) for v in i.outputs}
    used = {*plan.fetches, *(c.value for c in plan.checks), *(loop.trips for loop in loops_of(plan))}
    for instruction, _ in walk(plan.instructions):
        used.update(instruction.inputs)
        if isinstance(instruction, Loop):
            used.update([*(c.leaving for c in instruction.carried), *(s.part for s in instruction.stacked)])
            # A value may be carried for the body alone.
            used.update(c.result for c in instruction.carried if used_inside(c.entering, instruction))
        elif isinstance(instruction, Branch):
            used.update([*instruction.true_results, *instruction.false_results])
    return made - used


def used_inside(value: Value, loop: Loop) -> bool:
    return any(value in i.inputs for i, _ in walk(loop.body))


@pytest.mark.parametrize("program", RECOMPUTED.values(), ids=RECOMPUTED)
@pytest.mark.parametrize("layout", ["", "batch:rows;d:cols"])
def test_a_loop_that_is_computed_again_keeps_nothing_the_first_time(program: Program, layout: str) -> None:
    plan = plan_on_paper(with_gradients(program), SPECS, "rows:2;cols:2", layout)
    assert not unread(plan)
    by_operation: dict[object, list[Loop]] = {}
    for loop in loops_of(plan):
        by_operation.setdefault(loop.operation, []).append(loop)
    copies = [loops for loops in by_operation.values() if len(loops) > 1]
    assert copies
    for *before, last in copies:
        assert not [s for loop in before for s in loop.stacked]
        assert last.stacked
        assert {s.whole for s in last.stacked} <= {s.whole for loop in loops_of(plan) for s in loop.sliced}


@pytest.mark.parametrize("program", RECOMPUTED.values(), ids=RECOMPUTED)
def test_results_and_gradients_are_the_same_under_every_layout(program: Program) -> None:
    plain = interpret(with_gradients(program), INPUTS, "one:1")
    for layout in LAYOUTS:
        for found, wanted in zip(
            interpret(with_gradients(program), INPUTS, "rows:2;cols:2", layout).results, plain.results, strict=True
        ):
            assert_close(
                found,
                wanted,
                terms=terms_of(plain.plan),
                magnitude=max(SIZE, largest(wanted)),
                what=layout,
            )


def test_the_first_pass_takes_no_memory_for_what_only_the_second_keeps() -> None:
    """The forward pass has the peak here: of a tensor that the backward pass does without."""
    tall = mtf.Dimension("tall", 1000)

    def program(x: mtf.Tensor, w: mtf.Tensor, *, is_differentiated: bool) -> list[mtf.Tensor | None]:
        large = mtf.exp(mtf.broadcast(x, [tall, BATCH, D]))
        y = scan_of_scans("nothing")(x, w)
        metric = mtf.reduce_sum(large * y)
        return [metric, *(mtf.gradients([mtf.reduce_sum(y)], [x]) if is_differentiated else [])]

    def peak(is_differentiated: bool) -> int:
        fn = lambda x, w: program(x, w, is_differentiated=is_differentiated)  # noqa: E731
        return peak_memory(plan_on_paper(fn, SPECS, "rows:2", "batch:rows")).total

    entering_turns = 2 * 4 * 4 * 4
    assert peak(is_differentiated=True) - peak(is_differentiated=False) == entering_turns


def one_of_two_results(x: mtf.Tensor, w: mtf.Tensor, *, spare: bool) -> list[mtf.Tensor]:
    """A result that is stacked, and a value carried and an iteration's part that only it needs."""

    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Scanned:
        y = mtf.sin(carried[0] * parts[0])
        extra = mtf.exp(y + carried[1] * parts[1]) if spare else y
        return ([y, extra], [y, mtf.reduce_sum(extra)]) if spare else ([y], [y])

    carried, stacked = mtf.scan(body, [x, mtf.cos(x)] if spare else [x], [w, mtf.exp(w)] if spare else [w], LAYERS)
    return [carried[0], stacked[0]]


def one_of_two_loops(x: mtf.Tensor, w: mtf.Tensor, *, spare: bool) -> list[mtf.Tensor]:
    """Loops in loops: read only by another whose own results nobody reads."""

    def turn(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Scanned:
        y, both = carried[0] * mtf.reduce_sum(w), []
        if spare:
            (end,), (stacked,) = mtf.scan(lambda c, p: ([mtf.sin(c[0] * p[0])], [c[0]]), y, w, LAYERS)
            both = mtf.scan(lambda c, p: ([c[0] + p[0]], [c[0]]), end, stacked, LAYERS)[1]
        return [y], both

    return mtf.scan(turn, x, [], TURNS)[0]


def one_of_two_branch_results(x: mtf.Tensor, w: mtf.Tensor, *, spare: bool) -> list[mtf.Tensor]:
    sides = [[mtf.sin, mtf.exp], [mtf.cos, mtf.tanh]]
    fns = [lambda side=side: [f(x * 2.0) for f in side[: 1 + spare]] for side in sides]
    return mtf.cond(mtf.less(mtf.reduce_sum(w), 0.0), *fns)[:1]


def one_of_two_sums(x: mtf.Tensor, w: mtf.Tensor, *, spare: bool) -> list[mtf.Tensor]:
    """A sum over a loop's iterations."""

    def body(n: mtf.Tensor) -> list[mtf.Tensor]:
        y = x * mtf.cast(n, tf.float32)
        return [n + 1, mtf.sin(y), *([mtf.exp(y)] if spare else [])]

    start = mtf.zeros(x.mesh, [], tf.int32)
    less = lambda n: mtf.less(n, 5)  # noqa: E731
    return mtf.while_loop(less, body, start, has_accumulators=True, maximum_iterations=7)[:2]


SPARE = [one_of_two_results, one_of_two_loops, one_of_two_branch_results, one_of_two_sums]


@pytest.mark.parametrize("program", SPARE)
@pytest.mark.parametrize("layout", ["", "batch:rows;d:cols"])
def test_what_nobody_reads_costs_nothing(program: Program, layout: str) -> None:
    """Exactly what the program costs that was written without it."""

    def costs(spare: bool) -> tuple[int, int, int]:
        fn = lambda x, w: program(x, w, spare=spare)  # noqa: E731
        plan = plan_on_paper(fn, SPECS, "rows:2;cols:2", layout)
        assert not unread(plan)
        sent = sum(t.bytes_sent for t in accounting.traffic(plan))
        return accounting.flops(plan), sent, peak_memory(plan).total

    assert costs(spare=True) == costs(spare=False)


@pytest.mark.parametrize("program", SPARE)
def test_the_results_that_are_read_are_the_same(program: Program) -> None:
    def gradients_too(x: mtf.Tensor, w: mtf.Tensor, spare: bool = True) -> list[mtf.Tensor | None]:
        ys = program(x, w, spare=spare)
        total = mtf.add_n([mtf.reduce_sum(mtf.square(y)) for y in ys if y.dtype.is_floating])
        return [*ys, *mtf.gradients([total], [x])]

    plain = interpret(lambda x, w: gradients_too(x, w, spare=False), INPUTS, "one:1")
    for layout in LAYOUTS:
        for found, wanted in zip(
            interpret(gradients_too, INPUTS, "rows:2;cols:2", layout).results, plain.results, strict=True
        ):
            assert_close(
                found,
                wanted,
                terms=terms_of(plain.plan, wanted.dtype),
                magnitude=max(SIZE, largest(wanted)),
                what=layout,
            )


def test_the_gradient_by_one_input_does_not_make_that_of_the_others() -> None:
    """A loop's gradient gives those of all that it slices; the products for weights nobody asks for are left out."""
    both, one = (
        plan_on_paper(lambda x, w, n=n: mtf.gradients([mtf.reduce_sum(layers_of(x, w))], [x, w][:n]), SPECS, "one:1")
        for n in (2, 1)
    )
    stacked = [
        {s.whole.shape for loop in loops_of(plan) if loop.is_reversed for s in loop.stacked} for plan in (both, one)
    ]
    assert stacked == [{mtf.Shape([LAYERS, D])}, set()]
    assert accounting.flops(one) <= accounting.flops(both) - 2 * 8 * 8 * 4


def test_assignments_checks_and_prints_take_place_where_no_result_is_read(capfd: pytest.CaptureFixture[str]) -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        total = mtf.get_variable(x.mesh, "total", [D], initializer=np.zeros(4))

        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Scanned:
            y = mtf.check_finite(mtf.log(carried[0]), "in the loop") + parts[0]
            mtf.assign_add(total, mtf.reduce_sum(y, output_shape=[D]))
            mtf.cond(mtf.less(mtf.reduce_sum(y), 1e9), lambda: shown(y), lambda: mtf.exp(y))
            return [carried[0] + 1.0], [mtf.exp(y), mtf.reduce_sum(y)]

        def shown(y: mtf.Tensor) -> mtf.Tensor:
            return mtf.print_tensor(y, [mtf.reduce_sum(y)], "a layer")

        mtf.scan(body, x, w, LAYERS)
        return mtf.reduce_sum(x)

    step = mtf.function(program, mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;d:cols"), inputs=SPECS)
    plan = step.lowering.execution(step._fetches).plan
    (loop,) = loops_of(plan)
    assert not loop.stacked
    assert [i.results for i, _ in walk(loop.body) if isinstance(i, Branch)] == [()]
    x, w = np.full((8, 4), 2.0, np.float32), INPUTS["w"][1]
    step(x=x, w=w)
    assert capfd.readouterr().err.count("a layer") == 8
    total = sum(8 * (np.log(2.0 + n) + w[n]) for n in range(8))
    assert_close(step.variables["total"], total, terms=(8 * 8, FUNCTION_TERMS))
    with pytest.raises(NonFiniteError, match="in the loop"):
        step(x=-x, w=w)
    assert_close(step.variables["total"], total, terms=(8 * 8, FUNCTION_TERMS))


def test_a_condition_prints_what_nothing_else_reads(capfd: pytest.CaptureFixture[str]) -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        def goes_on(turn: mtf.Tensor, y: mtf.Tensor) -> mtf.Tensor:
            mtf.print_tensor(turn, [mtf.reduce_sum(y * 2.0)], "a turn")
            return mtf.less(turn, 3)

        none = mtf.constant(x.mesh, 0, dtype=tf.int32)
        return mtf.while_loop(goes_on, lambda turn, y: [turn + 1, y + 1.0], [none, x])[0] + mtf.cast(w, tf.int32)

    interpret(program, INPUTS, "rows:2", "batch:rows")
    assert capfd.readouterr().err.count("a turn") == 4


def test_a_pipeline_of_which_no_stage_is_read_is_none() -> None:
    is_useful = np.ones((8, 2), bool)
    steps, stage = mtf.PipelineSteps(LAYERS, mtf.Dimension("stage", 2), is_useful, 8), mtf.Dimension("stage", 2)

    def program(x: mtf.Tensor, w: mtf.Tensor, *, reads_stages: bool) -> list[mtf.Tensor]:
        body = lambda c, p: ([mtf.shift(mtf.sin(c[0]), 1, stage, wrap=True)], [mtf.exp(p[0])])  # noqa: E731
        (end,), (stacked,) = mtf.scan(body, mtf.zeros(x.mesh, [stage]), w, steps)
        return [stacked, *([end] if reads_stages else [])]

    for reads_stages in (True, False):
        fn = lambda x, w, reads=reads_stages: program(x, w, reads_stages=reads)  # noqa: E731
        report = mtf.function(fn, mtf.PlanMeshImpl("rows:2", "stage:rows"), inputs=SPECS).report()
        assert len(report.pipelines) == reads_stages
        assert any("rows" in c.axes for c in report.collectives) == reads_stages


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
        return [recomputed_twice(x, w), *one_of_two_results(x, w, spare=True), *one_of_two_loops(x, w, spare=True)]

    assert_layout_invariant(program, INPUTS, ["batch:rows;d:cols"])
