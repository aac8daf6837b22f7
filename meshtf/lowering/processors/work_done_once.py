"""Separates work that is the same on several cores from the work that each core does by itself.

Cores of one process and one memory can use the same tensor. A model split over four of eight cores would compute its
norms and residual sums on all four, from the same numbers. So one core computes them, and their memory exists once.
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
"""Instructions that each core does itself, in the part where their result is used."""


@dataclasses.dataclass(frozen=True, eq=False)
class WorkPart:
    """A part of the instructions, in order.

    Attributes:
      axes: the mesh axes along which cores do different work. One core works for all cores that would do the same.
        None: each core works for itself.
      instructions: the instructions of the part.
    """

    axes: Axes | None
    instructions: list[Instruction]


def parts_of_work(instructions: Sequence[Instruction], differing: DifferingSlices, facts: PlanFacts) -> list[WorkPart]:
    """Cuts the work into parts that run one after the other. Each core does the last part, which may be empty, by
    itself."""
    own: dict[Instruction, AxesSet] = {i: differing.axes_of(i) for i in instructions if not isinstance(i, _AT_HAND)}
    worth = [axes for axes in _worth_it(own) if not differing.differs_everywhere(axes)]
    # A user of a value differs along all axes along which the value differs, so parts with fewer axes come first.
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
    """The index of each instruction's part. Small work is in the part of its first user."""
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
        # An instruction that waits for a later part moves to the last part, since it may differ along more axes.
        place = places[instruction] = wanted[instruction] if earliest <= wanted[instruction] else last
        made.update(dict.fromkeys(instruction.outputs, place))
    return places
