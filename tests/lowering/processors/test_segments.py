"""Where a plan is cut into segments."""

from __future__ import annotations

import math

import meshtf as mtf
from meshtf.layers import PipelineSchedule, dense, pipeline
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.segments import Segment, segments_of_body, segments_of_program
from meshtf.planning.plan import AssignVariable, Collective, Instruction, Loop, Plan, Value, walk

LAYERS = 6


def plan_of_normalized_layers() -> Plan:
    """Of a training step, data parallel: in each layer a product, and statistics over the batch."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        for n in range(LAYERS):
            y = mtf.layers.dense(x, [mtf.Dimension(f"d{n}", 512)], use_bias=False, name=f"layer{n}")
            x = mtf.relu(mtf.layers.batch_norm(y, is_training=True, momentum=0.9))
        loss = mtf.reduce_mean(mtf.square(x))
        mtf.optimize.MomentumOptimizer(0.1, 0.9).minimize(loss)
        return loss

    program = mtf.function(step, mtf.PlanMeshImpl("all:8", "batch:all"), {"x": mtf.TensorSpec("batch:64 d:512")})
    return program.lowering.execution([program.results]).plan


def communicates(instruction: Instruction) -> bool:
    return any(isinstance(i, Collective) for i, _ in walk([instruction]))


def segments_of(plan: Plan) -> list[Segment]:
    return segments_of_program(PlanFacts.of(plan, writes_in_place=True), communicates)


def test_updates_cut_no_segment_that_ends_soon_anyway() -> None:
    plan = plan_of_normalized_layers()
    sums = [c for c in plan.collectives if c.step.reduction and math.prod(c.input.slice_shape) < 4096]
    updates = [c for c in plan.collectives if c not in sums]
    assert len(updates) >= LAYERS
    # Statistics: the mean, the variance, and in the gradient one sum of two. The last weight has its gradient alone.
    segments = segments_of(plan)
    assert 3 * LAYERS < len(segments) <= 3 * LAYERS + 4
    assert sum(len(s.together) > 1 for s in segments) >= LAYERS - 2


def test_everything_is_there_once_when_it_is_needed() -> None:
    plan = plan_of_normalized_layers()
    segments = segments_of(plan)
    order = [i for s in segments for i in (*s.instructions, *s.together)]
    in_place = {
        name for pairs in PlanFacts.of(plan, writes_in_place=True).in_place.values() for _, name in pairs.values()
    }
    expected = {i for i in plan.instructions if not isinstance(i, AssignVariable) or i.name not in in_place}
    assert len(order) == len(set(order))
    assert set(order) == expected
    made: set[Value] = set()
    for segment in segments:
        assert set(segment.entering) <= made
        for instruction in segment.instructions:
            assert set(instruction.inputs) <= made
            made.update(instruction.outputs)
        # What is done together takes what segments made, and what others before it in the same place did.
        for instruction in segment.together:
            assert isinstance(instruction, Collective)
            assert set(instruction.inputs) <= made
            made.update(instruction.outputs)


def test_a_permute_of_what_was_there_comes_first_and_cuts_nothing() -> None:
    """In the gradient of a pipeline each stage computes its layers again, and differentiates them, in one segment."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        (y,) = pipeline(
            lambda xs, _: [mtf.relu(dense(xs[0], [xs[0].shape[-1]]))],
            x,
            mtf.Dimension("layers", 4),
            PipelineSchedule(2, 4),
            recompute="nothing",
        )
        loss = mtf.reduce_sum(y)
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss

    program = mtf.function(
        step, mtf.PlanMeshImpl("stages:2", "stage:stages"), {"x": mtf.TensorSpec("batch:8 d_model:4")}
    )
    plan = program.lowering.execution([program.results]).plan
    forward, backward = (i for i in plan.instructions if isinstance(i, Loop))
    facts = PlanFacts.of(plan, writes_in_place=True)

    def segments_of(loop: Loop) -> list[Segment]:
        results = [*(c.leaving for c in loop.carried), *(s.part for s in loop.stacked)]
        return segments_of_body(loop.body, results, facts, communicates)

    def loops_and_permutes(segment: Segment) -> tuple[int, int]:
        return sum(isinstance(i, Loop) for i in segment.instructions), len(segment.together)

    # What a stage has made goes to the next behind it; its gradient has come before.
    assert [loops_and_permutes(s) for s in segments_of(forward)] == [(1, 1), (0, 0)]
    assert [loops_and_permutes(s) for s in segments_of(backward)] == [(0, 1), (2, 0)]
    before, behind = segments_of(backward)
    assert not before.instructions
    assert {v for i in before.together for v in i.outputs} <= set(behind.entering)
