"""Emits the cores of a process side by side: the `Scope` of control flow in which each core has its own tensor.

Virtual CPUs share one memory. A loop of a plan becomes one loop of TensorFlow's that carries the tensors of all cores.
Equal slices of several cores are carried once: with x split over `rows` on a mesh "rows:2;cols:2", the loop carries two
tensors of x for four cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, final

import tensorflow as tf

from meshtf.layout import Axes
from meshtf.lowering.emit.control_flow import Tensors, emit_branch
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.scopes import scope_name
from meshtf.lowering.processors.batched_work import BatchedWork
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.lowering.processors.segments import Segment
from meshtf.mesh_impl.spmd.shared_memory_collectives import CollectivesForAll, emit_for_all
from meshtf.planning import core_positions
from meshtf.planning.plan import Branch, Collective, Compute, Instruction, Loop, Sliced, Stacked, Value

HeldByCore = Mapping[int, dict[Value, tf.Tensor]]
"""The tensors that each core holds, by value."""


class SegmentWork(Protocol):
    """The work that `AllCores` delegates, and facts about the plan."""

    @property
    def facts(self) -> PlanFacts: ...

    @property
    def differing(self) -> DifferingSlices: ...

    @property
    def batched(self) -> BatchedWork | None: ...

    @property
    def collectives(self) -> CollectivesForAll:
        """The collectives of the function that is being traced."""
        ...

    def segments_of_body(self, instructions: Sequence[Instruction], results: Sequence[Value]) -> Sequence[Segment]:
        """The segments of the instructions inside a loop or a branch."""
        ...

    def run_segment(self, segment: Segment, core: int, held: Mapping[Value, tf.Tensor]) -> Sequence[tf.Tensor]:
        """Runs a segment on one core. Returns the tensors of `segment.leaving`."""
        ...

    def loop(self, cores: AllCores, loop: Loop) -> None:
        """Emits a loop for all cores, which hold its results afterwards."""
        ...


@final
class AllCores:
    """The tensors of all cores of a process, and the emission of instructions for all of them.

    Args:
      work: runs segments, and has the facts about the plan.
      held: the tensors that each core holds.
    """

    def __init__(self, work: SegmentWork, held: HeldByCore) -> None:
        self._work = work
        self.held = held

    def inside(self) -> AllCores:
        return AllCores(self._work, {core: dict(own) for core, own in self.held.items()})

    def number(self, value: Value) -> tf.Tensor:
        return next(iter(self.held.values()))[value]

    def give_number(self, value: Value, number: tf.Tensor) -> None:
        for own in self.held.values():
            own[value] = number

    def count(self, like: Value) -> int:
        return len(self._places(like))

    def tensors(self, value: Value, like: Value) -> Tensors:
        return [self.held[cores[0]][value] for cores in self._places(like).values()]

    def give(self, value: Value, tensors: Sequence[tf.Tensor], like: Value) -> None:
        for tensor, cores in zip(tensors, self._places(like).values(), strict=True):
            for core in cores:
                self.held[core][value] = tensor

    def rows(self, sliced: Sliced, index: tf.Tensor) -> Tensors:
        return [tf.gather(x, index, axis=sliced.dim) for x in self.tensors(sliced.whole, sliced.part)]

    def give_stacks(self, stacked: Stacked, stacks: Sequence[tf.TensorArray]) -> None:
        self.give(stacked.whole, [stack.stack() for stack in stacks], stacked.part)

    def emit(self, instructions: Sequence[Instruction], results: Sequence[Value]) -> None:
        for segment in self._work.segments_of_body(tuple(instructions), results):
            self.run_segment(segment)

    def run_segment(self, segment: Segment) -> dict[int, Sequence[tf.Tensor]]:
        """Runs a segment once for all cores that do the same work in it. Then emits the instructions that follow for
        all cores at once.

        Returns:
          The tensors that the segment returns, keyed by core.
        """
        made: dict[int, Sequence[tf.Tensor]] = {}
        results: dict[int, Sequence[tf.Tensor]] = {}
        for core, own in self.held.items() if segment.instructions or segment.ends_program else ():
            place = self._place(core, segment.axes)
            if place not in made:  # the first core at a place works for all cores at it
                made[place] = self._work.run_segment(segment, core, own)
            results[core] = made[place]
            own.update(zip(segment.leaving, results[core], strict=False))
        for instruction in segment.together:
            self._emit_together(instruction)
        return results

    def _emit_together(self, instruction: Instruction) -> None:
        facts = self._work.facts
        awaited = [own[v] for v in facts.awaited_by(instruction) for own in self.held.values()]
        with tf.name_scope(scope_name(facts.numbers[instruction], instruction)), tf.control_dependencies(awaited):
            _EMITTERS[type(instruction)](self, instruction)

    def _collective(self, collective: Collective) -> None:
        collectives = self._work.collectives
        slices = {core: own[collective.input] for core, own in self.held.items()}
        batched = self._work.batched
        results = None if batched is None else batched.rest_of_sum(collective, slices, collectives)
        if results is None:
            results = emit_for_all(collective.step, slices, collectives)
        for core, result in results.items():
            self.held[core][collective.output] = result

    def _compute(self, compute: Compute) -> None:
        (output,) = compute.outputs
        assert self._work.batched is not None
        for core, result in self._work.batched.run(compute, self.held).items():
            result.set_shape(output.slice_shape)
            self.held[core][output] = result

    def _loop(self, loop: Loop) -> None:
        self._work.loop(self, loop)

    def _branch(self, branch: Branch) -> None:
        emit_branch(self, branch)

    def _places(self, value: Value) -> dict[int, list[int]]:
        """The groups of cores that hold equal slices of a value, keyed by their position along the axes where it
        differs."""
        axes = self._work.differing.axes_of_value(value)
        places: dict[int, list[int]] = {}
        for core in self.held:
            places.setdefault(self._place(core, axes), []).append(core)
        return places

    def _place(self, core: int, axes: Axes | None) -> int:
        """A number that is equal for cores at one position along these axes; None stands for all axes."""
        return core if axes is None else core_positions.position(core, axes, self._work.facts.plan.mesh_shape)


_EMITTERS: dict[type, Callable[[AllCores, Any], None]] = {
    Compute: AllCores._compute,
    Collective: AllCores._collective,
    Loop: AllCores._loop,
    Branch: AllCores._branch,
}
