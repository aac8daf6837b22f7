"""Cuts feeds on the host, so that each core is handed only its own part.

For example, x [batch:8 d:4] is split over rows:2. First the plan feeds [8, 4] to each core, which cuts out [4, 4]. Then
the feed itself is [4, 4], and no core holds the whole. If something also reads the whole, the plan stays as it is.
"""

from __future__ import annotations

import dataclasses

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import Compute, Feed, Instruction, Plan, Value, walk


def cut_feeds(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which a feed has the layout of its use, if every core uses only its own slice of it.

    For an operation, a feed is whole on every core. If it were fed whole, every core would hold a copy, and cores with
    their own memories would each be sent one.
    """
    readers = _readers(plan)
    cuts: dict[Instruction, Compute] = {
        feed: cut for feed in plan.feeds if (cut := _only_cut(readers.get(feed.output, [])))
    }
    dropped = set(cuts.values())
    return dataclasses.replace(
        plan,
        instructions=tuple(
            dataclasses.replace(i, output=cuts[i].outputs[0]) if isinstance(i, Feed) and i in cuts else i
            for i in plan.instructions
            if i not in dropped
        ),
    )


def _readers(plan: Plan) -> dict[Value, list[Instruction | None]]:
    """Returns the instructions that use each value, with None for a fetch, which needs the whole like any reader."""
    readers: dict[Value, list[Instruction | None]] = {}
    for instruction, _ in walk(plan.instructions):
        for value in instruction.inputs:
            readers.setdefault(value, []).append(instruction)
    for value in plan.fetches:
        readers.setdefault(value, []).append(None)
    return readers


def _only_cut(readers: list[Instruction | None]) -> Compute | None:
    """Returns the one instruction that cuts an array, if nothing else reads the array."""
    (reader,) = readers if len(readers) == 1 else (None,)
    return reader if isinstance(reader, Compute) and reader.facts.takes_own_slice else None
