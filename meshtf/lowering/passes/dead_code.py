"""Removes whatever nobody reads: results of loops and branches, and the work that only they need.

A loop returns the results of its body and the values that its gradient may read. Where a backward pass computes the
loop again, only the second copy's stacks are read. A user may also want one result of a scan and not the others. Which
values are read is known when the whole program is planned. A value counts as read if a reader of it is itself read,
through any nesting of loops.

For example, a loop over layers:12 stacks each layer's [batch:8 width:64] for a gradient that recomputes it. So nobody
reads [layers:12 batch:8 width:64]. The stack goes, and the work that only makes its parts goes with it. A carried value
stays if some other read value needs it. That it reads itself in the next iteration does not count.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import (
    AssignVariable,
    Branch,
    Collective,
    Compute,
    Condition,
    Instruction,
    Loop,
    Plan,
    Value,
    nested,
    walk,
)


def remove_dead_code(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan without instructions that no fetch, check, assignment or print needs.

    Inputs and variables are still read: a program has them even if it does not use them.
    """
    return dataclasses.replace(plan, instructions=_kept(plan.instructions, _read(plan)))


def _read(plan: Plan) -> set[Value]:
    """Returns the values that are read by something that is itself read, or that runs for its effect."""
    needs = {v: needed for i, _ in walk(plan.instructions) for v, needed in _needs(i)}
    waiting = [*plan.fetches, *(c.value for c in plan.checks), *_needed_by_effects(plan.instructions)]
    found = set(waiting)
    while waiting:
        more = [v for v in needs.get(waiting.pop(), ()) if v not in found]
        found.update(more)
        waiting.extend(more)
    return found


def _needs(instruction: Instruction) -> Iterator[tuple[Value, tuple[Value, ...]]]:
    """Yields each value that an instruction makes, or gives to the instructions inside it, with the values it is made
    of.
    """
    if isinstance(instruction, Loop):
        turns = _deciding(instruction)
        yield instruction.trips, turns
        for c in instruction.carried:
            yield c.entering, (c.initial, c.leaving)
            yield c.result, (c.initial, c.leaving, *turns)
        yield from ((s.part, (s.whole,)) for s in instruction.sliced)
        yield from ((s.whole, (s.part, *turns)) for s in instruction.stacked)
        if instruction.condition is not None:
            pairs = zip(instruction.condition.entering, instruction.carried, strict=False)
            yield from ((seen, (c.entering,)) for seen, c in pairs)
    elif isinstance(instruction, Branch):
        sides = zip(instruction.results, instruction.true_results, instruction.false_results, strict=True)
        yield from ((result, (*own, instruction.predicate)) for result, *own in sides)
    else:
        yield from ((v, tuple(instruction.inputs)) for v in instruction.outputs)


def _deciding(instruction: Instruction) -> tuple[Value, ...]:
    """Returns the values that decide whether, and how often, the instructions inside run."""
    if isinstance(instruction, Branch):
        return (instruction.predicate,)
    if not isinstance(instruction, Loop):
        return ()
    count = () if instruction.count is None else (instruction.count,)
    return count if instruction.condition is None else (*count, instruction.condition.goes_on)


def _needed_by_effects(instructions: Sequence[Instruction], around: tuple[Value, ...] = ()) -> Iterator[Value]:
    for instruction in instructions:
        if _is_effect(instruction):
            yield from (*instruction.inputs, *around)
        else:
            yield from _needed_by_effects(nested(instruction), (*around, *_deciding(instruction)))


def _is_effect(instruction: Instruction) -> bool:
    if isinstance(instruction, Compute):
        # A Compute that stands for a whole loop or branch has no effect itself. The instructions inside have theirs.
        return instruction.operation.has_side_effect and not instruction.operation.blocks
    return isinstance(instruction, AssignVariable)


def _kept(instructions: Sequence[Instruction], read: Collection[Value]) -> tuple[Instruction, ...]:
    return tuple(_with_what_is_read(i, read) for i in instructions if _is_kept(i, read))


def _is_kept(instruction: Instruction, read: Collection[Value]) -> bool:
    if isinstance(instruction, Loop | Branch) and any(_is_effect(i) for i, _ in walk([instruction])):
        return True
    if isinstance(instruction, Compute | Collective | Loop | Branch):
        return _is_effect(instruction) or any(v in read for v in instruction.outputs)
    return True


def _with_what_is_read(instruction: Instruction, read: Collection[Value]) -> Instruction:
    if isinstance(instruction, Loop):
        return _loop(instruction, read)
    return _branch(instruction, read) if isinstance(instruction, Branch) else instruction


def _loop(loop: Loop, read: Collection[Value]) -> Loop:
    carried = tuple(c for c in loop.carried if c.entering in read or c.result in read)
    note = loop.pipeline
    return dataclasses.replace(
        loop,
        condition=_condition(loop, loop.condition, read) if loop.condition is not None else None,
        carried=carried,
        sliced=tuple(s for s in loop.sliced if s.part in read),
        stacked=tuple(s for s in loop.stacked if s.whole in read),
        body=_kept(loop.body, read),
        # The report describes the values that go from stage to stage. If none of them is read, it has nothing to say.
        pipeline=note if note and any(c.entering.shape.has(note.stage.name) for c in carried) else None,
    )


def _condition(loop: Loop, condition: Condition, read: Collection[Value]) -> Condition:
    pairs = zip(condition.entering, loop.carried, strict=False)
    entering = tuple(seen for seen, c in pairs if c.entering in read or c.result in read)
    return Condition(entering, _kept(condition.instructions, read), condition.goes_on)


def _branch(branch: Branch, read: Collection[Value]) -> Branch:
    places = [n for n, v in enumerate(branch.results) if v in read]
    true_results, false_results, results = (
        tuple(values[n] for n in places) for values in (branch.true_results, branch.false_results, branch.results)
    )
    return dataclasses.replace(
        branch,
        if_true=_kept(branch.if_true, read),
        if_false=_kept(branch.if_false, read),
        true_results=true_results,
        false_results=false_results,
        results=results,
    )
