"""Facts about a whole plan that emission needs. They are computed once.

Most facts are about values that need not be made. If only Adam's fused update reads the variable m, the plan's read of
m is `unread`: the update reads m itself, and the old m is not held beside the new one. If only the backward loop reads
the stack of activations of the forward loop, it is `only_sliced`: the parts stay a `tf.TensorArray` and are never
joined.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from meshtf.lowering.emit.rows_in_loops import rows_in_loops
from meshtf.lowering.passes.updates.update_fusion import consumers_of, updates_in_place
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Compute,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Value,
    walk,
)


@dataclasses.dataclass(frozen=True, eq=False)
class PlanFacts:
    """Facts of one plan.

    Attributes:
      plan: the plan.
      numbers: the index of each instruction in the plan's order, nested instructions included.
      in_place: the updates that write to variables at once. Each maps the index of the input that reads a variable to
        the index of the result and the variable's name.
      unread: the values of variables that only such an update reads. The update reads them itself, so that nothing else
        holds the memory that it frees.
      late_assignments: all other assignments, which run when the program ends.
      read: the values that something reads.
      only_sliced: the stacks of loops that only other loops read, part by part. They need not be joined.
      rows_in_place: the replacements of rows that overwrite a value that a loop carries.
      own_memory: the values that enter an iteration of such a loop, each in the loop's own memory.
      guarded: the variables whose new value equals the old one if a check fails.
    """

    plan: Plan
    numbers: Mapping[Instruction, int]
    in_place: Mapping[Compute, Mapping[int, tuple[int, str]]]
    unread: frozenset[Value]
    late_assignments: tuple[AssignVariable, ...]
    read: frozenset[Value]
    only_sliced: frozenset[Value]
    guarded: frozenset[str]
    rows_in_place: frozenset[Compute]
    own_memory: frozenset[Value]

    @classmethod
    def of(cls, plan: Plan, *, writes_in_place: bool) -> PlanFacts:
        """Collects the facts about a plan.

        Args:
          plan: the plan.
          writes_in_place: whether variables are TensorFlow's, which can be written at any time. A compiled program
            receives values instead, and returns new ones.
        """
        in_place = updates_in_place(plan) if writes_in_place else {}
        names = {i: {name for _, name in pairs.values()} for i, pairs in in_place.items()}
        done = {name for own in names.values() for name in own}
        consumers = consumers_of(plan) if in_place else {}
        rows_in_place, own_memory = rows_in_loops(plan) if writes_in_place else (frozenset(), frozenset())

        def is_unread(read: ReadVariable) -> bool:
            users = consumers.get(read.output, [])
            return bool(users) and all(isinstance(i, Compute) and read.name in names.get(i, ()) for i in users)

        return cls(
            plan=plan,
            numbers={instruction: n for n, (instruction, _) in enumerate(walk(plan.instructions))},
            in_place=in_place,
            unread=frozenset(read.output for read in plan.reads if is_unread(read)),
            late_assignments=tuple(i for i in plan.assignments if i.name not in done),
            read=read_values(plan),
            only_sliced=_only_sliced(plan),
            guarded=_guarded(plan),
            rows_in_place=rows_in_place,
            own_memory=own_memory,
        )

    def awaited_by(self, instruction: Instruction) -> tuple[Value, ...]:
        """The values that an instruction waits for besides its inputs."""
        awaited = self.plan.awaited.get(instruction)
        return () if awaited is None else awaited.outputs[:1]

    def needed_by(self, instruction: Instruction) -> list[Value]:
        """The values that must exist before an instruction begins."""
        return [*instruction.inputs, *self.awaited_by(instruction)]

    def variables_of(self, instructions: Iterable[Instruction]) -> tuple[str, ...]:
        """The names of the variables that these instructions read or write."""
        used: dict[str, None] = {}
        for instruction in instructions:
            if isinstance(instruction, AssignVariable) or (
                isinstance(instruction, ReadVariable) and instruction.output not in self.unread
            ):
                used[instruction.name] = None
            elif isinstance(instruction, Compute):
                used |= dict.fromkeys(name for _, name in self.in_place.get(instruction, {}).values())
        return tuple(used)


def _guarded(plan: Plan) -> frozenset[str]:
    """The variables whose new value is the old one if a check fails."""
    updates = [i for i in plan.instructions if isinstance(i, Compute) and isinstance(i.emit, RowUpdate)]
    values = {v for i in updates if isinstance(i.emit, RowUpdate) and i.emit.guards for v in i.outputs}
    return frozenset(i.name for i in plan.assignments if i.input in values)


def given_outwards(instruction: Instruction) -> list[Value]:
    """The inner values of a loop or a branch that it carries on, stacks, returns or uses as its condition."""
    if isinstance(instruction, Loop):
        goes_on = [] if instruction.condition is None else [instruction.condition.goes_on]
        return [*(c.leaving for c in instruction.carried), *(s.part for s in instruction.stacked), *goes_on]
    if isinstance(instruction, Branch):
        return [*instruction.true_results, *instruction.false_results]
    return []


def read_values(plan: Plan) -> frozenset[Value]:
    """The values that are read by an instruction, by the outside of a loop or a branch, or by the program's caller."""
    read = {*plan.fetches, *(c.value for c in plan.checks)}
    for instruction, _ in walk(plan.instructions):
        read.update(instruction.inputs)
        read.update(given_outwards(instruction))
    return frozenset(read)


def _only_sliced(plan: Plan) -> frozenset[Value]:
    stacked: set[Value] = set()
    used = {*plan.fetches, *(c.value for c in plan.checks)}
    for instruction, _ in walk(plan.instructions):
        if isinstance(instruction, Loop):
            stacked.update(s.whole for s in instruction.stacked)
            # A TensorArray has parts along its first dimension only.
            used.update(s.whole for s in instruction.sliced if s.dim != 0)
            used.update(v for c in instruction.carried for v in (c.initial, c.leaving))
            used.update(s.part for s in instruction.stacked)
        elif isinstance(instruction, Branch):
            used.update([*instruction.true_results, *instruction.false_results])
        else:
            used.update(instruction.inputs)
    return frozenset(stacked - used)
