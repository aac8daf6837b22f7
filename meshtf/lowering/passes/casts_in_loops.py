"""Converts stacked weights to another dtype layer by layer inside a loop, and not as a whole before it.

Weights are kept in float32 and read in the dtype of the activations. Suppose that is bfloat16, and a loop takes a stack
[layers:96 d_model d_ff] layer by layer. Then a copy of half the variable's size would stand beside it from the forward
pass to the backward pass. So (cast the stack, loop over its layers) becomes (loop over the variable's layers, cast the
layer). Each element is rounded as before.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import (
    Compute,
    Instruction,
    Loop,
    Plan,
    ReadVariable,
    Sliced,
    Value,
    used_directly,
    walk,
    with_nested_changed,
)


def cast_inside_loops(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which loops convert their parts of variables, if only loops read the converted variable."""
    casts = _casts_for_loops(plan)
    if not casts:
        return plan
    numbers = itertools.count(1 + max(v.index for i, _ in walk(plan.instructions) for v in i.outputs))
    return dataclasses.replace(plan, instructions=_moved(plan.instructions, casts, numbers))


def _casts_for_loops(plan: Plan) -> dict[Value, Compute]:
    """Returns the casts of whole variables whose results are only sliced by loops, keyed by their results."""
    variables = {i.output for i in plan.instructions if isinstance(i, ReadVariable)}
    casts = {
        i.outputs[0]: i
        for i in plan.instructions
        if isinstance(i, Compute) and i.facts.is_cast and i.inputs[0] in variables
    }
    uses = collections.Counter([*plan.fetches, *(c.value for c in plan.checks)])
    slices: collections.Counter[Value] = collections.Counter()
    for instruction, _ in walk(plan.instructions):
        uses.update(used_directly(instruction))
        if isinstance(instruction, Loop):
            slices.update(s.whole for s in instruction.sliced)
    # A reader that is no loop needs the whole converted stack, and then nothing is saved.
    return {v: cast for v, cast in casts.items() if 0 < slices[v] == uses[v]}


def _moved(
    instructions: Sequence[Instruction], casts: Mapping[Value, Compute], numbers: Iterator[int]
) -> tuple[Instruction, ...]:
    gone: Collection[Instruction] = set(casts.values())
    return tuple(_changed(i, casts, numbers) for i in instructions if i not in gone)


def _changed(instruction: Instruction, casts: Mapping[Value, Compute], numbers: Iterator[int]) -> Instruction:
    changed = with_nested_changed(instruction, lambda inside: _moved(inside, casts, numbers))
    if not isinstance(changed, Loop):
        return changed
    sliced, added = [], []
    for own in changed.sliced:
        cast = casts.get(own.whole)
        if cast is not None:
            part = dataclasses.replace(own.part, index=next(numbers), dtype=cast.inputs[0].dtype)
            added.append(dataclasses.replace(cast, inputs=(part,), outputs=(own.part,)))
            own = Sliced(cast.inputs[0], own.dim, part)
        sliced.append(own)
    return dataclasses.replace(changed, sliced=tuple(sliced), body=(*added, *changed.body))
