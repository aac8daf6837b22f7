"""Instructions in stretches that each core runs by itself, between what all cores of a process do at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.planning.plan import AssignVariable, Feed, Instruction, Value, free_values


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Instructions, one after the other.

    Attributes:
      instructions: that each core runs.
      entering: values that they use, and others made.
      leaving: values that they make, and what follows uses.
      feeds, variables: the names of those that they are given.
      together: what follows them, for all cores at once.
      ends_program: whether the results of the program are made here.
    """

    instructions: tuple[Instruction, ...]
    entering: tuple[Value, ...] = ()
    leaving: tuple[Value, ...] = ()
    feeds: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    together: tuple[Instruction, ...] = ()
    ends_program: bool = False


IsTogether = Callable[[Instruction], bool]
"""Whether an instruction is for all cores at once."""


def stretches_of_program(facts: PlanFacts, is_together: IsTogether) -> list[Stretch]:
    """All of a plan; one stretch, where nothing is done together."""
    plan = facts.plan
    own = [i for i in plan.instructions if not isinstance(i, AssignVariable)]
    pieces = _pieces(own, facts, is_together)
    if pieces[-1].together:
        pieces.append(_Piece())
    pieces[-1].instructions += facts.late_assignments
    results = [*plan.fetches, *(c.value for c in plan.checks)]
    return _stretches(pieces, results, facts, ends_program=True)


def stretches_of_body(
    instructions: Sequence[Instruction],
    results: Sequence[Value],
    facts: PlanFacts,
    is_together: IsTogether,
) -> list[Stretch]:
    """Of the instructions inside a loop or a branch, of which some values are wanted afterwards."""
    return _stretches(_pieces(instructions, facts, is_together), results, facts, ends_program=False)


@dataclasses.dataclass(eq=False)
class _Piece:
    """A stretch as it grows."""

    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    together: list[Instruction] = dataclasses.field(default_factory=list)


def _pieces(instructions: Iterable[Instruction], facts: PlanFacts, is_together: IsTogether) -> list[_Piece]:
    """As few as the order of the instructions allows: a piece ends where something needs what is done together.

    A core begins with a piece when all is there that enters it; what is done together takes place when its own inputs
    are there.
    """
    pieces, waited_for = [_Piece()], set[Value]()
    for instruction in instructions:
        joins = is_together(instruction)
        # One that is done together may follow another in the same place.
        if not joins and not waited_for.isdisjoint(_needed(instruction, facts)):
            pieces.append(_Piece())
            waited_for = set()
        (pieces[-1].together if joins else pieces[-1].instructions).append(instruction)
        if joins:
            waited_for.update(instruction.outputs)
    return pieces


def _needed(instruction: Instruction, facts: PlanFacts) -> list[Value]:
    """What must be there before it begins."""
    return [*instruction.inputs, *facts.awaited_by(instruction)]


def _stretches(
    pieces: Sequence[_Piece], results: Sequence[Value], facts: PlanFacts, *, ends_program: bool
) -> list[Stretch]:
    found: list[Stretch] = []
    wanted = set(results)
    for n, piece in reversed(list(enumerate(pieces))):
        is_end = ends_program and n == len(pieces) - 1
        wanted |= {v for i in piece.together for v in _needed(i, facts)}
        leaving = tuple(v for i in piece.instructions for v in i.outputs if v in wanted)
        entering = _entering(piece, results if is_end else (), facts)
        wanted |= set(entering)
        found.append(
            Stretch(
                tuple(piece.instructions),
                entering,
                () if is_end else leaving,
                tuple(i.name for i in piece.instructions if isinstance(i, Feed)),
                facts.variables_of(piece.instructions),
                tuple(piece.together),
                is_end,
            )
        )
    return found[::-1]


def _entering(piece: _Piece, returned: Sequence[Value], facts: PlanFacts) -> tuple[Value, ...]:
    """What the instructions use, or wait for, of what was made before; not what is only read to be updated in place."""
    waits = [v for i in piece.instructions for v in facts.awaited_by(i)]
    made = {v for i in piece.instructions for v in i.outputs}
    needed = dict.fromkeys([*free_values(piece.instructions, set(), returned), *waits])
    return tuple(v for v in needed if v not in made and v not in facts.unread)
