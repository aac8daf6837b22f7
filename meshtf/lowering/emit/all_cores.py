"""The cores of a process that share a memory, side by side in the trace of one function.

Each core runs stretches of the plan, every one a function traced once. Between them stands what takes all cores: a
collective, which is arithmetic on their slices, and a loop or a branch that has collectives inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import tensorflow as tf

from meshtf.layout import Axes
from meshtf.lowering.emit._cheap_operations import cheap_operations, know_shape
from meshtf.lowering.emit.batched_work import BatchedWork
from meshtf.lowering.emit.control_flow import Stack, new_stack, written
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.scopes import scope_name
from meshtf.lowering.emit.stretches.differing_slices import DifferingSlices
from meshtf.lowering.emit.stretches.stretches import Stretch, stretches_of_body
from meshtf.mesh_impl.spmd.shared_memory_collectives import CollectivesForAll, emit_for_all
from meshtf.planning import core_positions
from meshtf.planning.plan import Branch, Collective, Compute, Instruction, Loop, Value, walk

HeldByCore = Mapping[int, dict[Value, tf.Tensor]]
"""What each core holds, by value."""


class RunStretch(Protocol):
    """Runs a stretch on one core, and returns the values that leave it."""

    def __call__(self, stretch: Stretch, core: int, held: Mapping[Value, tf.Tensor]) -> Sequence[tf.Tensor]: ...


def takes_all_cores(instruction: Instruction) -> bool:
    """Whether it is a collective, or has one inside."""
    return any(isinstance(i, Collective) for i, _ in walk([instruction]))


class AllCores:
    """Runs stretches on each core, and between them what takes all of them.

    Args:
      facts: of the plan.
      differing: its slices, where cores share a memory; what several of them would do alike is then done once.
      batched: what is then done for several of them by one kernel.
      run_stretch: what a stretch gives on a core.
      collectives: those of the function that is being traced.
    """

    def __init__(
        self,
        facts: PlanFacts,
        differing: DifferingSlices | None,
        batched: BatchedWork | None,
        run_stretch: RunStretch,
        collectives: Callable[[], CollectivesForAll],
    ) -> None:
        self._facts = facts
        self._differing = differing
        self._batched = batched
        self._run_stretch = run_stretch
        self._collectives = collectives
        self._bodies: dict[tuple[Instruction, ...], list[Stretch]] = {}

    def run_together(self, instruction: Instruction, held: HeldByCore) -> None:
        """Does an instruction that takes all cores; what it makes is held afterwards."""
        awaited = [own[v] for v in self._facts.awaited_by(instruction) for own in held.values()]
        with tf.name_scope(scope_name(self._facts.numbers[instruction], instruction)), tf.control_dependencies(awaited):
            _EMITTERS[type(instruction)](self, instruction, held)

    def run_stretch(self, stretch: Stretch, held: HeldByCore) -> dict[int, Sequence[tf.Tensor]]:
        """What a stretch gives on each core, which holds afterwards what leaves it."""
        if not stretch.instructions and not stretch.ends_program:
            return {}
        made: dict[int, Sequence[tf.Tensor]] = {}
        results: dict[int, Sequence[tf.Tensor]] = {}
        for core, own in held.items():
            place = self._place(core, stretch.axes)
            if place not in made:
                made[place] = self._run_stretch(stretch, core, own)
            results[core] = made[place]
            own.update(zip(stretch.leaving, results[core], strict=False))
        return results

    def _is_together(self, instruction: Instruction) -> bool:
        return takes_all_cores(instruction) or (self._batched is not None and self._batched.takes(instruction))

    def _run(self, instructions: tuple[Instruction, ...], results: Sequence[Value], held: HeldByCore) -> None:
        """Does the instructions inside of another, of which results are wanted."""
        if instructions not in self._bodies:
            self._bodies[instructions] = stretches_of_body(
                instructions, results, self._facts, self._is_together, self._differing
            )
        for stretch in self._bodies[instructions]:
            self.run_stretch(stretch, held)
            for instruction in stretch.together:
                self.run_together(instruction, held)

    def _collective(self, collective: Collective, held: HeldByCore) -> None:
        assert self._batched is not None
        slices = {core: own[collective.input] for core, own in held.items()}
        results = self._batched.rest_of_sum(collective, slices, self._collectives())
        if results is None:
            results = emit_for_all(collective.step, slices, self._collectives())
        for core, result in results.items():
            held[core][collective.output] = result

    def _compute(self, compute: Compute, held: HeldByCore) -> None:
        assert self._batched is not None
        (output,) = compute.outputs
        for core, result in self._batched.run(compute, held).items():
            know_shape(result, output.slice_shape)
            held[core][output] = result

    def _loop(self, loop: Loop, held: HeldByCore) -> None:
        """As TensorFlow's loop, which carries the values of all cores, and once what several have alike."""
        count: Any = loop.length if loop.count is None else _any_of(held)[loop.count]
        carried = [
            [self._facts.sums.initial_of(c, own) for own in self._first_of_each(c.entering, held)] for c in loop.carried
        ]
        stacks = [[new_stack(loop, s, in_place=True) for _ in self._first_of_each(s.part, held)] for s in loop.stacked]
        trips, finals, filled = tf.while_loop(
            lambda turn, values, _: self._goes_on(loop, turn, count, values, held),
            lambda turn, values, stacks: self._iterate(loop, turn, count, values, stacks, held),
            (tf.constant(0), carried, stacks),
            parallel_iterations=1,
        )
        for own in held.values():
            own[loop.trips] = trips
        for c, final in zip(loop.carried, finals, strict=True):
            wholes = [self._facts.sums.result_of(c, x) for x in final]
            self._hand_out(c.result, wholes, c.entering, held)
        for s, parts in zip(loop.stacked, filled, strict=True):
            wholes = [x if isinstance(x, tf.Tensor) else x.stack() for x in parts]
            self._hand_out(s.whole, wholes, s.part, held)

    @cheap_operations()
    def _goes_on(
        self, loop: Loop, turn: tf.Tensor, count: Any, values: Sequence[Sequence[tf.Tensor]], held: HeldByCore
    ) -> tf.Tensor:
        if loop.condition is None:
            return turn < count
        inside = {core: {**own, loop.index: turn} for core, own in held.items()}
        for c, entering, own in zip(loop.carried, loop.condition.entering, values, strict=False):
            self._hand_out(entering, own, c.entering, inside)
        self._run(loop.condition.instructions, [loop.condition.goes_on], inside)
        return tf.logical_and(turn < count, _any_of(inside)[loop.condition.goes_on])

    @cheap_operations()
    def _iterate(
        self,
        loop: Loop,
        turn: tf.Tensor,
        count: Any,
        values: Sequence[Sequence[tf.Tensor]],
        stacks: Sequence[Sequence[Stack]],
        held: HeldByCore,
    ) -> tuple[tf.Tensor, list[list[tf.Tensor]], list[list[Stack]]]:
        index = count - 1 - turn if loop.is_reversed else turn
        parts: dict[Any, tf.Tensor] = {}  # those of what cores have alike, once
        inside = {core: {**own, loop.index: index} for core, own in held.items()}
        for own in inside.values():
            for s in loop.sliced:
                key = (own[s.whole].ref(), s.dim)
                if key not in parts:
                    parts[key] = tf.gather(own[s.whole], index, axis=s.dim)
                own[s.part] = parts[key]
        for c, entering in zip(loop.carried, values, strict=True):
            self._hand_out(c.entering, entering, c.entering, inside)
        results = [*(c.leaving for c in loop.carried), *(s.part for s in loop.stacked)]
        self._run(loop.body, results, inside)
        leaving = [[own[c.leaving] for own in self._first_of_each(c.entering, inside)] for c in loop.carried]
        filled = [
            [
                written(stack, index, own[s.part])
                for stack, own in zip(parts_of, self._first_of_each(s.part, inside), strict=True)
            ]
            for parts_of, s in zip(stacks, loop.stacked, strict=True)
        ]
        return turn + 1, leaving, filled

    def _first_of_each(self, value: Value, held: HeldByCore) -> list[dict[Value, tf.Tensor]]:
        """What the first of the cores holds that have a value alike, of each such group."""
        found: dict[int, dict[Value, tf.Tensor]] = {}
        for core, own in held.items():
            found.setdefault(self._place(core, self._axes_of(value)), own)
        return list(found.values())

    def _hand_out(self, value: Value, tensors: Sequence[tf.Tensor], alike: Value, held: HeldByCore) -> None:
        """Gives each core a value, of which there is one tensor for each group of cores that have another one alike."""
        places = {core: self._place(core, self._axes_of(alike)) for core in held}
        by_place = dict(zip(dict.fromkeys(places.values()), tensors, strict=True))
        for core, own in held.items():
            own[value] = by_place[places[core]]

    def _axes_of(self, value: Value) -> Axes | None:
        return None if self._differing is None else self._differing.axes_of_value(value)

    def _place(self, core: int, axes: Axes | None) -> int:
        """Alike for cores at one position along these axes; where they are None, for no two."""
        return core if axes is None else core_positions.position(core, axes, self._facts.plan.mesh_shape)

    def _branch(self, branch: Branch, held: HeldByCore) -> None:
        @cheap_operations()
        def take(instructions: tuple[Instruction, ...], results: Sequence[Value]) -> list[list[tf.Tensor]]:
            inside = {core: dict(own) for core, own in held.items()}
            self._run(instructions, results, inside)
            return [[tf.identity(own[v]) for v in results] for own in inside.values()]

        taken = tf.cond(
            _any_of(held)[branch.predicate],
            lambda: take(branch.if_true, branch.true_results),
            lambda: take(branch.if_false, branch.false_results),
        )
        for own, results in zip(held.values(), taken, strict=True):
            own.update(zip(branch.results, results, strict=True))


def _any_of(held: HeldByCore) -> Mapping[Value, tf.Tensor]:
    """What one core holds, of numbers that all have alike."""
    return next(iter(held.values()))


_EMITTERS: dict[type, Callable[[AllCores, Any, HeldByCore], None]] = {
    Compute: AllCores._compute,
    Collective: AllCores._collective,
    Loop: AllCores._loop,
    Branch: AllCores._branch,
}
