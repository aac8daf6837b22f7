"""Work that cores would do alike, apart from what each does by itself.

Cores of one process and one memory can use the same tensor. A model split over four of eight cores computes its norms
and residual sums on all four, of the same numbers: one core does it, and its memory is there once.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence

from meshtf.layout import Axes
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.differing_slices import AxesSet, DifferingSlices
from meshtf.planning.plan import AssignVariable, Compute, Feed, Instruction, ReadVariable, Value, walk
from meshtf.thresholds import CALL_BYTES, CALL_FLOPS

_AT_HAND = (Feed, ReadVariable, AssignVariable)
"""Instructions whose results each core has of its own, and uses wherever they are wanted."""


@dataclasses.dataclass(frozen=True, eq=False)
class WorkPart:
    """Instructions, in their order.

    Attributes:
      axes: the mesh axes along which cores do different work; of those that do the same, one does it. None: each does.
      instructions: what is done.
    """

    axes: Axes | None
    instructions: list[Instruction]


def parts_of_work(instructions: Sequence[Instruction], differing: DifferingSlices, facts: PlanFacts) -> list[WorkPart]:
    """The same work in parts, one after the other; the last, which may be empty, each core does by itself."""
    own: dict[Instruction, AxesSet] = {i: differing.axes_of(i) for i in instructions if not isinstance(i, _AT_HAND)}
    worth = [axes for axes in _worth_it(own) if not differing.differs_everywhere(axes)]
    # What uses a value differs wherever the value does, so fewer axes come first.
    order = sorted(worth, key=lambda axes: (len(axes), sorted(axes)))
    if not order:
        return [WorkPart(None, list(instructions))]
    places = _places(instructions, own, order, facts)
    parts = [
        WorkPart(differing.in_order(axes), [i for i in instructions if places[i] == n]) for n, axes in enumerate(order)
    ]
    last = WorkPart(None, [i for i in instructions if places[i] == len(order)])
    return [*(p for p in parts if p.instructions), last]


def _worth_it(own: Mapping[Instruction, AxesSet]) -> list[AxesSet]:
    made: collections.Counter[AxesSet] = collections.Counter()
    flops: collections.Counter[AxesSet] = collections.Counter()
    for instruction, axes in own.items():
        for i, times in walk([instruction]):
            if isinstance(i, Compute):
                made[axes] += times * (0 if i.facts.is_view else sum(v.slice_bytes for v in i.outputs))
                flops[axes] += times * i.flops
    return [axes for axes in made if made[axes] >= CALL_BYTES or flops[axes] >= CALL_FLOPS]


def _places(
    instructions: Sequence[Instruction],
    own: Mapping[Instruction, AxesSet],
    order: Sequence[AxesSet],
    facts: PlanFacts,
) -> dict[Instruction, int]:
    """The part in which each instruction stands. Small work stands in the part of its first user."""
    last = len(order)
    numbers = {axes: n for n, axes in enumerate(order)}
    users: dict[Value, int] = {}
    wanted: dict[Instruction, int] = {}
    for instruction in reversed(instructions):
        first = min((users[v] for v in instruction.outputs if v in users), default=last)
        place = wanted[instruction] = numbers.get(own[instruction], first) if instruction in own else first
        for value in facts.needed_by(instruction):
            users[value] = min(place, users.get(value, last))
    places: dict[Instruction, int] = {}
    made: dict[Value, int] = {}
    for instruction in instructions:
        earliest = max((made[v] for v in facts.needed_by(instruction) if v in made), default=0)
        # One that waits for a later part differs along more axes than that part may.
        place = places[instruction] = wanted[instruction] if earliest <= wanted[instruction] else last
        made.update(dict.fromkeys(instruction.outputs, place))
    return places
