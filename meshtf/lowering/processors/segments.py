"""Instructions in segments that each core runs by itself, between what all cores of a process do at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from meshtf.layout import Axes
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.differing_slices import DifferingSlices
from meshtf.lowering.processors.work_done_once import parts_of_work
from meshtf.ops.variables.variable import Assign
from meshtf.planning.plan import AssignVariable, Collective, Compute, Feed, Instruction, Plan, Value, free_values


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Instructions, one after the other.

    Attributes:
      instructions: that each core runs.
      entering: values that they use, and others made.
      leaving: values that they make, and what follows uses.
      feeds, variables: the names of those that they are given.
      together: what follows them, for all cores at once.
      ends_program: whether the results of the program are made here.
      axes: the mesh axes along which cores do different work in it; of those that do the same, one does it for all.
        None: each does.
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
"""Whether an instruction is for all cores at once."""


def segments_of_program(
    facts: PlanFacts, is_together: IsTogether, differing: DifferingSlices | None = None
) -> list[Segment]:
    """All of a plan; one segment, where nothing is done together. Work that cores would do alike, as `differing`
    tells, has segments of its own."""
    plan = facts.plan
    own = [i for i in plan.instructions if not isinstance(i, AssignVariable)]
    pieces = _pieces(own, facts, is_together, _patient(plan))
    if pieces[-1].together:
        pieces.append(_Piece())
    pieces[-1].instructions += facts.late_assignments
    results = [*plan.fetches, *(c.value for c in plan.checks)]
    return _segments(_divided(pieces, differing, facts), results, facts, ends_program=True)


def segments_of_body(
    instructions: Sequence[Instruction],
    results: Sequence[Value],
    facts: PlanFacts,
    is_together: IsTogether,
    differing: DifferingSlices | None = None,
) -> list[Segment]:
    """Of the instructions inside a loop or a branch, of which some values are wanted afterwards."""
    pieces = _divided(_pieces(instructions, facts, is_together), differing, facts)
    return _segments(pieces, results, facts, ends_program=False)


@dataclasses.dataclass(eq=False)
class _Piece:
    """A segment as it grows."""

    instructions: list[Instruction] = dataclasses.field(default_factory=list)
    together: list[Instruction] = dataclasses.field(default_factory=list)
    axes: Axes | None = None


def _divided(pieces: Sequence[_Piece], differing: DifferingSlices | None, facts: PlanFacts) -> list[_Piece]:
    """What cores do alike, apart from what each does by itself."""
    if differing is None:
        return list(pieces)
    found: list[_Piece] = []
    for n, piece in enumerate(pieces):
        *alike, each = parts_of_work(piece.instructions, differing, facts)
        found += [_Piece(part.instructions, axes=part.axes) for part in alike]
        if each.instructions or not alike or n == len(pieces) - 1:
            found.append(_Piece(each.instructions))
        found[-1].together = piece.together
    return found


def _pieces(
    instructions: Sequence[Instruction],
    facts: PlanFacts,
    is_together: IsTogether,
    patient: frozenset[Instruction] = frozenset(),
) -> list[_Piece]:
    """As few as the order of the instructions allows: a piece ends where something needs what is done together.

    A core begins with a piece when all is there that enters it; what is done together takes place when its own inputs
    are there. Patient instructions are put off, if a piece ends soon anyway. A permute of what was there before a piece
    takes place before it: it hands slices on where they are, and what needs them then ends no piece.
    """
    cutting = _Cutting(instructions, facts, is_together, patient)
    for n, instruction in enumerate(instructions):
        cutting.place(instruction, n)
    while cutting.put_off:
        cutting.cut(len(instructions))
    return cutting.pieces


_SOON = 32
"""Instructions. What is put off holds a weight's gradient for as long."""


class _Cutting:
    """Pieces so far."""

    def __init__(
        self,
        instructions: Sequence[Instruction],
        facts: PlanFacts,
        is_together: IsTogether,
        patient: frozenset[Instruction],
    ) -> None:
        self._instructions, self._facts, self._is_together, self._patient = instructions, facts, is_together, patient
        self.pieces = [_Piece()]
        self.put_off: list[Instruction] = []
        self._waited_for: set[Value] = set()
        self._behind: set[Value] = set()
        """Outputs of what was put off."""

    def place(self, instruction: Instruction, n: int) -> None:
        """Puts it into the last piece, into a new one, or off; `n` instructions were looked at before it."""
        joins = self._is_together(instruction)
        needed = self._facts.needed_by(instruction)
        if joins and _only_hands_on(instruction) and self._was_there(needed):
            if len(self.pieces) == 1:
                self.pieces.insert(0, _Piece())
            self.pieces[-2].together.append(instruction)
            return
        while True:
            is_behind = not self._behind.isdisjoint(needed)
            # One that is done together may follow another in the same place.
            waits = not joins and not self._waited_for.isdisjoint(needed)
            if not (is_behind or waits):
                break
            if instruction in self._patient and (is_behind or self._ends_soon(instruction, n)):
                self.put_off.append(instruction)
                self._behind.update(instruction.outputs)
                return
            self.cut(n)
        (self.pieces[-1].together if joins else self.pieces[-1].instructions).append(instruction)
        if joins:
            self._waited_for.update(instruction.outputs)

    def cut(self, n: int) -> None:
        """Begins a piece, with what was put off."""
        self.pieces.append(_Piece())
        waiting, self.put_off = self.put_off, []
        self._waited_for, self._behind = set(), set()
        for instruction in waiting:
            self.place(instruction, n)

    def _was_there(self, needed: Sequence[Value]) -> bool:
        """Whether the last piece, and what follows it, makes none of this, nor what was put off."""
        made = {v for i in (*self.pieces[-1].instructions, *self.pieces[-1].together) for v in i.outputs}
        return made.isdisjoint(needed) and self._behind.isdisjoint(needed)

    def _ends_soon(self, put_off: Instruction, n: int) -> bool:
        """Whether something that is not patient ends the piece, among the next instructions."""
        waited_for, behind = set(self._waited_for), {*self._behind, *put_off.outputs}
        for instruction in self._instructions[n + 1 : n + 1 + _SOON]:
            needed = self._facts.needed_by(instruction)
            if not behind.isdisjoint(needed):
                behind.update(instruction.outputs)
            elif self._is_together(instruction):
                waited_for.update(instruction.outputs)
            elif not waited_for.isdisjoint(needed):
                if instruction not in self._patient:
                    return True
                behind.update(instruction.outputs)
        return False


def _only_hands_on(instruction: Instruction) -> bool:
    """Whether it is a permute, which costs nothing in one memory."""
    return isinstance(instruction, Collective) and instruction.step.destinations is not None


def _patient(plan: Plan) -> frozenset[Instruction]:
    """Updates of variables, from the reduced gradient on: nothing waits for them but the end of the program."""
    wanted = {*plan.fetches, *(c.value for c in plan.checks)}
    found = []
    for instruction in reversed(plan.instructions):
        if isinstance(instruction, AssignVariable):
            continue
        if wanted.isdisjoint(instruction.outputs) and _may_be_patient(instruction):
            found.append(instruction)
        else:
            wanted.update(instruction.inputs)
    return frozenset(found)


def _may_be_patient(instruction: Instruction) -> bool:
    if isinstance(instruction, Collective):
        return not instruction.step.reduction
    operation = instruction.operation
    has_effect = operation.has_side_effect and not isinstance(operation, Assign)
    return isinstance(instruction, Compute) and not instruction.facts.products and not has_effect


def _segments(
    pieces: Sequence[_Piece], results: Sequence[Value], facts: PlanFacts, *, ends_program: bool
) -> list[Segment]:
    found: list[Segment] = []
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
    """What the instructions use, or wait for, of what was made before; not what is only read to be updated in place."""
    waits = [v for i in piece.instructions for v in facts.awaited_by(i)]
    made = {v for i in piece.instructions for v in i.outputs}
    needed = dict.fromkeys([*free_values(piece.instructions, set(), returned), *waits])
    return tuple(v for v in needed if v not in made and v not in facts.unread)
