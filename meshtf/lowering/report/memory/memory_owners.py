"""Finds the value that owns the memory of each value of a plan, and the instruction after which that memory is free.

A value may be in the memory of another value. A reshape shares its input's memory, and a new weight replaces the old.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence

from meshtf.lowering.passes.updates.update_fusion import updates_in_place
from meshtf.lowering.report.accounting import stored_variables
from meshtf.planning.plan import Compute, Feed, Instruction, Loop, Plan, ReadVariable, Value, used_directly, walk


def memory_owners(plan: Plan) -> dict[Value, Value]:
    """Returns, for each value, the owner of its memory: the value itself, or the value that it views or replaces."""
    owner: dict[Value, Value] = {}
    stored = stored_variables(plan)
    given_away = _given_away(plan)
    for i in plan.instructions:
        for value in i.outputs:
            owner[value] = value
        if isinstance(i, Compute) and i.facts.is_view:
            owner[i.outputs[0]] = owner[i.inputs[0]]
        elif isinstance(i, ReadVariable):
            owner[i.output] = stored[i.name]
        elif isinstance(i, Loop):
            owner.update({c.result: owner[c.initial] for c in i.carried if c.initial in given_away})
    # A new weight replaces the old one in memory, unless the old one is still needed then.
    updates = updates_in_place(plan)
    held = _read_later(plan, updates)
    for i, results in updates.items():
        free = [(out, name) for n, (out, name) in results.items() if (i, i.inputs[n]) not in held]
        owner.update({i.outputs[out]: stored[name] for out, name in free})
    return owner


def _given_away(plan: Plan) -> set[Value]:
    """Returns the values that only one instruction uses. A loop that begins with such a value may write over it."""
    uses = collections.Counter([*plan.fetches, *(c.value for c in plan.checks)])
    for instruction, _ in walk(plan.instructions):
        uses.update(used_directly(instruction))
    made = {
        v
        for i in plan.instructions
        if not isinstance(i, Feed | ReadVariable) and not (isinstance(i, Compute) and i.facts.is_view)
        for v in i.outputs
    }
    return {v for v in made if uses[v] == 1}


def _read_later(plan: Plan, updates: Mapping[Compute, Mapping[int, tuple[int, str]]]) -> set[tuple[Compute, Value]]:
    """Returns updates, each with a variable's value that something else still needs at that time."""
    needed: set[Value] = {*plan.fetches, *(c.value for c in plan.checks)}
    found: set[tuple[Compute, Value]] = set()
    for i in reversed(plan.instructions):
        updated = updates.get(i, {}) if isinstance(i, Compute) else {}
        needed.update(v for n, v in enumerate(i.inputs) if n not in updated)
        if isinstance(i, Compute):
            found.update((i, i.inputs[n]) for n in updated if i.inputs[n] in needed)
            if i.facts.is_view and i.outputs[0] in needed:
                needed.add(i.inputs[0])
    return found


def freed_values(plan: Plan, owner: dict[Value, Value]) -> dict[int, list[Value]]:
    """Returns the values whose memory is free after an instruction, by its position. Values that stay are not
    among them.
    """
    last: dict[Value, int] = {}
    made: dict[Value, int] = {}
    for position, i in enumerate(plan.instructions):
        for value in (*i.inputs, *i.outputs):
            last[owner[value]] = position
        for value in i.outputs:
            made.setdefault(owner[value], position)
    stored = stored_variables(plan)
    replaced = {stored[i.name]: owner[i.input] for i in plan.assignments} if not plan.checks else {}
    # An assignment waits only for its value, wherever it stands.
    last |= {old: max(last.get(old, 0), made[new]) for old, new in replaced.items() if new in made}
    kept = {owner[v] for v in _kept(plan)} - {old for old, new in replaced.items() if new is not old}
    freed: dict[int, list[Value]] = {}
    for value, position in last.items():
        if value not in kept:
            freed.setdefault(position, []).append(value)
    return freed


def _kept(plan: Plan) -> Sequence[Value]:
    stored = [i.output for i in plan.instructions if isinstance(i, Feed | ReadVariable)]
    return [*stored, *plan.fetches, *(i.input for i in plan.assignments), *(c.value for c in plan.checks)]


def allocated_values(instruction: Instruction, owner: dict[Value, Value]) -> list[Value]:
    if isinstance(instruction, Feed | ReadVariable):
        return []
    return [v for v in instruction.outputs if owner[v] is v]
