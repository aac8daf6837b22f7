"""Cuts instructions into segments that each core runs by itself, between instructions for all cores of a process at
once.

Take (p = matmul, s = sum of p over cores, relu of p, square of s). Relu comes after the sum and does not need it. So
there are two segments, (matmul, relu) and (square), with the sum between them. A new segment begins only where an
instruction needs the result of one that is done together. The fewer segments there are, the fewer functions are traced
and called.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from meshtf.layout import Axes
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.lowering.processors.work_done_once import parts_of_work
from meshtf.planning.plan import AssignVariable, Collective, Feed, Instruction, Value, free_values, walk


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Instructions that each core runs by itself, and the instructions for all cores that follow them.

    Attributes:
      instructions: the instructions that each core runs, in order.
      entering: the values that they use and that were made earlier.
      leaving: the values that they make and that something uses afterwards.
      feeds: the names of the feeds that they read.
      variables: the names of the variables that they read or write.
      together: the instructions that follow, each done for all cores at once.
      ends_program: whether this segment makes the results of the program.
      axes: the mesh axes along which cores do different work in it. One core does the work for all cores that would do
        the same. None: each core works for itself.
    """

    instructions: tuple[Instruction, ...]
    entering: tuple[Value, ...] = ()
    leaving: tuple[Value, ...] = ()
    feeds: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    together: tuple[Instruction, ...] = ()
    ends_program: bool = False
    axes: Axes | None = None


IsTogether = Callable[[Instruction], bool]
"""Whether an instruction is done for all cores at once."""


def communicates(instruction: Instruction) -> bool:
    """Whether the instruction is a collective or contains one."""
    return any(isinstance(i, Collective) for i, _ in walk([instruction]))


def segments_of_program(facts: PlanFacts, is_together: IsTogether, differing: DifferingSlices) -> list[Segment]:
    """Cuts a plan into segments. Work that is the same on several cores gets its own segments."""
    plan = facts.plan
    own = [i for i in plan.instructions if not isinstance(i, AssignVariable)]
    pieces = _pieces(own, facts, is_together)
    if pieces[-1].together:  # the end of the program is work of each core, and comes after all collectives
        pieces.append(_Piece())
    pieces[-1].instructions += facts.late_assignments
    results = [*plan.fetches, *(c.value for c in plan.checks)]
    return _segments(_divided(pieces, differing, facts), results, facts, ends_program=True)


def segments_of_body(
    instructions: Sequence[Instruction],
    results: Sequence[Value],
    facts: PlanFacts,
    is_together: IsTogether,
    differing: DifferingSlices,
) -> list[Segment]:
    """Cuts the instructions inside a loop or a branch into segments. `results` are read afterwards."""
    pieces = _divided(_pieces(instructions, facts, is_together), differing, facts)
    return _segments(pieces, results, facts, ends_program=False)


@dataclasses.dataclass(eq=False)
class _Piece:
    """A segment under construction."""

    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    together: list[Instruction] = dataclasses.field(default_factory=list)
    axes: Axes | None = None


def _divided(pieces: Sequence[_Piece], differing: DifferingSlices, facts: PlanFacts) -> list[_Piece]:
    """Separates work that is the same on several cores from the work that each core does by itself."""
    found: list[_Piece] = []
    for n, piece in enumerate(pieces):
        *alike, each = parts_of_work(piece.instructions, differing, facts)
        found += [_Piece(part.instructions, axes=part.axes) for part in alike]
        if each.instructions or not alike or n == len(pieces) - 1:
            found.append(_Piece(each.instructions))
        found[-1].together = piece.together
    return found


def _pieces(instructions: Sequence[Instruction], facts: PlanFacts, is_together: IsTogether) -> list[_Piece]:
    """Cuts instructions into as few pieces as their order allows.

    A piece ends where an instruction needs the result of one that is done together. A core starts a piece when all
    entering values exist. An instruction that is done together starts when its own inputs exist.
    """
    pieces = [_Piece()]
    waited_for: set[Value] = set()
    """The outputs of the instructions done together after the last piece."""
    for instruction in instructions:
        if is_together(instruction):  # several may follow one another here
            pieces[-1].together.append(instruction)
            waited_for.update(instruction.outputs)
            continue
        if not waited_for.isdisjoint(facts.needed_by(instruction)):
            pieces.append(_Piece())
            waited_for = set()
        pieces[-1].instructions.append(instruction)
    return pieces


def _segments(
    pieces: Sequence[_Piece], results: Sequence[Value], facts: PlanFacts, *, ends_program: bool
) -> list[Segment]:
    found: list[Segment] = []
    # Goes backwards from the end: a segment passes on only the values that something after it needs.
    wanted = set(results)
    for n, piece in reversed(list(enumerate(pieces))):
        is_end = ends_program and n == len(pieces) - 1
        wanted |= {v for i in piece.together for v in facts.needed_by(i)}
        leaving = tuple(v for i in piece.instructions for v in i.outputs if v in wanted and v not in facts.unread)
        entering = _entering(piece, results if is_end else (), facts)
        wanted |= set(entering)
        found.append(
            Segment(
                tuple(piece.instructions),
                entering,
                () if is_end else leaving,
                tuple(i.name for i in piece.instructions if isinstance(i, Feed)),
                facts.variables_of(piece.instructions),
                tuple(piece.together),
                is_end,
                piece.axes,
            )
        )
    return found[::-1]


def _entering(piece: _Piece, returned: Sequence[Value], facts: PlanFacts) -> tuple[Value, ...]:
    """The values made earlier that the instructions use or wait for, except variables that an update reads itself."""
    waits = [v for i in piece.instructions for v in facts.awaited_by(i)]
    made = {v for i in piece.instructions for v in i.outputs}
    needed = dict.fromkeys([*free_values(piece.instructions, set(), returned), *waits])
    return tuple(v for v in needed if v not in made and v not in facts.unread)
