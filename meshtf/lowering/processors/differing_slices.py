"""Finds the mesh axes along which cores hold different slices of a value. Along all others, slices are equal to the
bit.

Local work is a function of a core's slices and of its position along the axes of their layouts. So if all inputs are
replicated along an axis, so is the result. With x split over `rows` on "rows:2;cols:2", relu of x differs only along
`rows`: cores 0 and 1 hold equal slices, and so do cores 2 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from meshtf.layout import Axes
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.planning.local_work.adding_in_place import AddToPart, Zeros
from meshtf.planning.plan import Branch, Collective, Compute, Instruction, Loop, Value, walk

AxesSet: TypeAlias = frozenset[str]
_NONE: AxesSet = frozenset()


class DifferingSlices:
    """The axes along which the values of a plan differ, including values inside loops and branches.

    Args:
      facts: facts of the plan. Results of updates in place, and sums to which loops add, count as different on every
        core, because each core writes to its own memory. So do the results of a user's function, because nothing is
        known about it.
    """

    def __init__(self, facts: PlanFacts) -> None:
        self._facts = facts
        self._all = frozenset(d.name for d in facts.plan.mesh_shape if d.size > 1)
        self._of: dict[Value, AxesSet] = {}
        self._reduced: dict[Value, AxesSet] = {}
        """The axes over which values are reduced. Each core's term of a maximum differs although no sum is pending."""
        for collective in facts.plan.collectives:
            for own in (collective, *collective.members):
                if own.step.reduction:
                    self._reduced[own.input] = self._reduced.get(own.input, _NONE) | {*own.step.axes}
        self._go_through(facts.plan.instructions)

    def axes_of(self, instruction: Instruction) -> AxesSet:
        """The axes along which cores do different work, in an instruction that does not communicate."""
        inside = (i for i, _ in walk([instruction]))
        found = _NONE.union(*(self._of_values((*i.inputs, *i.outputs)) for i in inside))
        return self._all if any(self._is_of_each(i) for i, _ in walk([instruction])) else found

    def axes_of_value(self, value: Value) -> Axes | None:
        """The axes along which its slices differ, in the mesh's order; None if no two cores hold equal slices."""
        axes = self._of[value]
        return None if self.differs_everywhere(axes) else self.in_order(axes)

    def in_order(self, axes: AxesSet) -> Axes:
        """The axes in the order of the mesh."""
        return tuple(d.name for d in self._facts.plan.mesh_shape if d.name in axes)

    def differs_everywhere(self, axes: AxesSet) -> bool:
        """Whether these are all axes, so that no two cores hold equal slices."""
        return axes == self._all

    def _go_through(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, Loop):
                self._loop(instruction)
            elif isinstance(instruction, Branch):
                self._branch(instruction)
            else:
                self._work(instruction)

    def _work(self, instruction: Instruction) -> None:
        given = self._of_values(instruction.inputs)
        if isinstance(instruction, Collective):
            # After a permute, a core holds the slice of another core. After any other collective, the cores of a group
            # hold equal slices, except along the axes that split the result.
            given -= frozenset(instruction.step.axes if instruction.step.destinations is None else ())
        elif self._is_of_each(instruction):
            given = self._all
        for value in instruction.outputs:
            self._of[value] = given | self._written_of(value)

    def _loop(self, loop: Loop) -> None:
        self._of[loop.index] = self._of[loop.trips] = _NONE
        for carried in loop.carried:
            self._of[carried.entering] = self._of_values([carried.initial]) | self._written_of(carried.entering)
        for s in loop.sliced:
            self._of[s.part] = self._of_values([s.whole]) | self._written_of(s.part)
        # A carried value may begin to differ in the second iteration, so this repeats until nothing changes. It ends
        # because axes are only added.
        while True:
            if loop.condition is not None:
                for carried, entering in zip(loop.carried, loop.condition.entering, strict=False):
                    self._of[entering] = self._of[carried.entering]
                self._go_through(loop.condition.instructions)
            self._go_through(loop.body)
            # A value that differs at the end of an iteration also differs in the next.
            more = [c for c in loop.carried if not self._of[c.leaving] <= self._of[c.entering]]
            if not more:
                break
            for carried in more:
                self._of[carried.entering] |= self._of[carried.leaving]
        for carried in loop.carried:
            self._of[carried.result] = self._of[carried.entering] | self._written_of(carried.result)
        for stacked in loop.stacked:
            self._of[stacked.whole] = self._of[stacked.part] | self._written_of(stacked.whole)

    def _branch(self, branch: Branch) -> None:
        for instructions in (branch.if_true, branch.if_false):
            self._go_through(instructions)
        for result, *made in zip(branch.results, branch.true_results, branch.false_results, strict=True):
            self._of[result] = self._of_values([branch.predicate, *made]) | self._written_of(result)

    def _is_of_each(self, instruction: Instruction) -> bool:
        """Whether each core must do the instruction itself."""
        if not isinstance(instruction, Compute):
            return False
        is_in_place = instruction in self._facts.in_place or instruction in self._facts.rows_in_place
        has_memory_of_its_own = is_in_place or isinstance(instruction.emit, Zeros | AddToPart)
        return has_memory_of_its_own or bool(instruction.operation.why_not_compiled)

    def _of_values(self, values: Iterable[Value]) -> AxesSet:
        return _NONE.union(*(self._of[v] for v in values))

    def _written_of(self, value: Value) -> AxesSet:
        """The axes that split a value, or over which it is still to be reduced."""
        return self._all & self._reduced.get(value, _NONE).union(value.pending, *value.layout.axes)
