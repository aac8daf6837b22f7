"""The pipelines of a plan: how long their stages wait, which axes split the stages, and what they send and keep."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.graph.operation import Operation
from meshtf.layout import Axes
from meshtf.lowering.report.accounting import collective_bytes
from meshtf.planning.pipeline_note import PipelineNote
from meshtf.planning.plan import Collective, Instruction, Loop, Plan, Value, walk


@dataclasses.dataclass(frozen=True, slots=True)
class KeptMemory:
    """Bytes that a core keeps from a pipeline's forward pass for its backward pass.

    of_steps: the inputs and results of all steps. in_stage: the results of a stage's layers, while the backward pass
    computes one step of it again.
    """

    of_steps: int
    in_stage: int


@dataclasses.dataclass(frozen=True, slots=True)
class Pipeline:
    """A pipeline in a plan: the forward pass and the loops that its gradient adds.

    Attributes:
      note: the schedule.
      operation: the operation that made the pipeline.
      axes: mesh axes that split the stages.
      times: how often all steps are taken, with backward steps.
      bytes_per_step: bytes that each core sends along these axes, to the next stages, in a step of the forward pass.
      kept: the memory kept for the backward pass, or None if there is none.
    """

    note: PipelineNote
    operation: Operation
    axes: Axes
    times: int
    bytes_per_step: int
    kept: KeptMemory | None


def pipelines(plan: Plan) -> list[Pipeline]:
    """Returns the pipelines in program order."""
    found: dict[PipelineNote, list[tuple[Loop, int]]] = {}
    for instruction, times in walk(plan.instructions):
        if isinstance(instruction, Loop) and instruction.pipeline is not None:
            found.setdefault(instruction.pipeline, []).append((instruction, times))
    return [_pipeline(note, loops, plan) for note, loops in found.items()]


def _pipeline(note: PipelineNote, loops: list[tuple[Loop, int]], plan: Plan) -> Pipeline:
    first, _ = loops[0]
    axes = _axes(note, first)
    inside = [(i, times) for i, times in walk(first.body) if isinstance(i, Collective) and {*i.step.axes} & {*axes}]
    bytes_per_step = sum(times * collective_bytes(i, plan) for i, times in inside)
    times = sum(times for _, times in loops)
    return Pipeline(note, first.operation, axes, times, bytes_per_step, _kept([loop for loop, _ in loops]))


def _axes(note: PipelineNote, loop: Loop) -> Axes:
    """Returns the mesh axes that split the stages of the first value that goes from stage to stage."""
    value = next(c.entering for c in loop.carried if c.entering.shape.has(note.stage.name))
    return value.layout.axes[value.shape.axis(note.stage)]


def _kept(loops: Sequence[Loop]) -> KeptMemory | None:
    forward = [loop for loop in loops if loop.is_reversed == loops[0].is_reversed]
    backward = [loop for loop in loops if loop not in forward]
    if not backward:
        return None
    known = {s.whole for loop in forward for s in (*loop.sliced, *loop.stacked)}
    of_steps = sum(value.slice_bytes for value in _sliced(backward) & known)
    return KeptMemory(of_steps, max(_kept_inside(loop.body) for loop in backward))


def _kept_inside(instructions: Sequence[Instruction]) -> int:
    """Returns the bytes of stacks that loops in the other direction read, and the most that is kept inside of them."""
    loops = [i for i in instructions if isinstance(i, Loop)]
    own = 0
    for loop in loops:
        read = _sliced([other for other in loops if other.is_reversed != loop.is_reversed])
        own += sum(s.whole.slice_bytes for s in loop.stacked if s.whole in read)
    return own + max((_kept_inside(loop.body) for loop in loops), default=0)


def _sliced(loops: Sequence[Loop]) -> set[Value]:
    return {s.whole for loop in loops for s in loop.sliced}
