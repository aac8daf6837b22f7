"""Feeds that are cut on the host, so that each core is handed its own part and no more."""

from __future__ import annotations

import dataclasses

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import Compute, Feed, Instruction, Plan, Value, walk


def cut_feeds(plan: Plan, options: PassOptions) -> Plan:
    """The plan with those feeds in the layout of their use of which all that is used is each core's slice.

    An operation sees what is fed as whole on every core. Handed over so, it would be held, and where cores have
    memories of their own also sent, as often as there are cores.
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
    """Of values, the instructions that use them; None for what is fetched."""
    readers: dict[Value, list[Instruction | None]] = {}
    for instruction, _ in walk(plan.instructions):
        for value in instruction.inputs:
            readers.setdefault(value, []).append(instruction)
    for value in plan.fetches:
        readers.setdefault(value, []).append(None)
    return readers


def _only_cut(readers: list[Instruction | None]) -> Compute | None:
    """The one instruction that cuts an array, where nothing else reads it."""
    (reader,) = readers if len(readers) == 1 else (None,)
    return reader if isinstance(reader, Compute) and reader.facts.takes_own_slice else None
