"""A plan in stretches that each core runs by itself, between loops that are run for all cores at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.lowering.passes.update_fusion import updates_in_place
from meshtf.planning.plan import AssignVariable, Instruction, Loop, Plan, Value, free_values


@dataclasses.dataclass(frozen=True, slots=True)
class Stretch:
    """Instructions, one after the other.

    Attributes:
      instructions: that each core runs.
      entering: values that they use, and others made.
      leaving: values that they make, and later stretches or loops use.
      loop: what follows them, for all cores at once; None behind the last stretch, which ends with the program.
    """

    instructions: tuple[Instruction, ...]
    entering: tuple[Value, ...] = ()
    leaving: tuple[Value, ...] = ()
    loop: Loop | None = None


def stretches(plan: Plan) -> list[Stretch]:
    """All of a plan; one, where no loop is joint."""
    pieces: list[list[Instruction]] = [[]]
    loops: list[Loop] = []
    for instruction in plan.instructions:
        if isinstance(instruction, Loop) and instruction.compilation is not None and instruction.compilation.is_joint:
            loops.append(instruction)
            pieces.append([])
        elif not isinstance(instruction, AssignVariable):
            pieces[-1].append(instruction)
    if not loops:
        return [Stretch(tuple(plan.instructions))]
    done = {name for pairs in updates_in_place(plan).values() for _, name in pairs.values()}
    pieces[-1] += [assignment for assignment in plan.assignments if assignment.name not in done]
    results = [*plan.fetches, *(c.value for c in plan.checks)]
    entering = [free_values(piece, set(), results if n == len(loops) else []) for n, piece in enumerate(pieces)]
    found = []
    for n, piece in enumerate(pieces):
        later = {v for own in entering[n + 1 :] for v in own} | {v for loop in loops[n:] for v in loop.inputs}
        leaving = [v for i in piece for v in i.outputs if v in later]
        found.append(Stretch(tuple(piece), tuple(entering[n]), tuple(leaving), _at(loops, n)))
    return found


def _at(loops: Sequence[Loop], number: int) -> Loop | None:
    return loops[number] if number < len(loops) else None
