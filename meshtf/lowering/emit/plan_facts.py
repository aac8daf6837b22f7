"""What emission asks of a plan as a whole, found out once."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import tensorflow as tf

from meshtf.lowering.emit.control_flow import only_sliced, read_values
from meshtf.lowering.emit.sums_in_parts import HANDLE_SPEC, SumsInParts
from meshtf.lowering.passes.update_fusion import consumers_of, updates_in_place
from meshtf.planning.plan import AssignVariable, Compute, Instruction, Plan, ReadVariable, Value, walk


@dataclasses.dataclass(frozen=True, eq=False)
class PlanFacts:
    """Of one plan.

    Attributes:
      numbers: of its instructions, those inside of others too, in order.
      only_sliced: what loops stack, and nothing uses but loops that take its parts.
      read: what something uses. Of what a loop carries round, the last may be for nobody.
      in_place: updates that write to variables where they are: by the number of an input, that of the result and the
        variable's name.
      unread: what is read of variables, and only such updates use: to read it would hold on to the memory that they
        write to. And zeros that nobody makes.
      late_assignments: those that take place when the program ends.
      sums: those that are arrays of parts until they are whole.
    """

    plan: Plan
    numbers: Mapping[Instruction, int]
    only_sliced: frozenset[Value]
    read: frozenset[Value]
    in_place: Mapping[Compute, Mapping[int, tuple[int, str]]]
    unread: frozenset[Value]
    late_assignments: tuple[AssignVariable, ...]
    sums: SumsInParts

    @classmethod
    def of(cls, plan: Plan, *, writes_in_place: bool, adds_in_parts: bool = False) -> PlanFacts:
        """`writes_in_place`: whether there are variables to write to, and no values in their stead. `adds_in_parts`:
        whether it is executed operation by operation, on processors."""
        sums = SumsInParts.of(plan) if adds_in_parts else SumsInParts()
        in_place = updates_in_place(plan) if writes_in_place else {}
        names = {i: {name for _, name in pairs.values()} for i, pairs in in_place.items()}
        done = {name for own in names.values() for name in own}
        consumers = consumers_of(plan) if in_place else {}

        def is_unread(read: ReadVariable) -> bool:
            users = consumers.get(read.output, [])
            return bool(users) and all(isinstance(i, Compute) and read.name in names.get(i, ()) for i in users)

        return cls(
            plan=plan,
            numbers={instruction: n for n, (instruction, _) in enumerate(walk(plan.instructions))},
            only_sliced=only_sliced(plan),
            read=read_values(plan),
            in_place=in_place,
            unread=frozenset(read.output for read in plan.reads if is_unread(read)) | sums.zeros,
            late_assignments=tuple(i for i in plan.assignments if i.name not in done),
            sums=sums,
        )

    def spec_of(self, value: Value) -> tf.TensorSpec:
        """Of the tensor that stands for a value on a core."""
        if value in self.sums.additions:
            return HANDLE_SPEC
        return tf.TensorSpec(value.slice_shape, value.dtype)

    def awaited_by(self, instruction: Instruction) -> tuple[Value, ...]:
        """What an instruction waits for besides its inputs."""
        awaited = self.plan.awaited.get(instruction)
        return () if awaited is None else awaited.outputs[:1]

    def needed_by(self, instruction: Instruction) -> list[Value]:
        """What must be there before an instruction begins."""
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
