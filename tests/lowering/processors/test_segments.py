"""Where a plan is cut into segments."""

from __future__ import annotations

import itertools

import meshtf as mtf
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.lowering.processors.segments import Segment, communicates, segments_of_program
from meshtf.planning.plan import AssignVariable, Collective, Plan, Value

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


def segments_of(plan: Plan) -> list[Segment]:
    facts = PlanFacts.of(plan, writes_in_place=True)
    return segments_of_program(facts, communicates, DifferingSlices(facts))


def test_a_segment_ends_where_something_needs_what_is_done_together() -> None:
    """And nowhere else: what begins the next needs it. Sums that follow one another are made in one place."""
    segments = segments_of(plan_of_normalized_layers())
    assert len(segments) >= 3 * LAYERS  # statistics: the mean, the variance, and in the gradient one sum of two
    assert any(len(s.together) > 1 for s in segments)
    for before, segment in itertools.pairwise(segments):
        made = {v for i in before.together for v in i.outputs}
        first = segment.instructions[0] if segment.instructions else None
        assert segment.ends_program or (first is not None and not made.isdisjoint(first.inputs))


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
