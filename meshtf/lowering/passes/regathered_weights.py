"""Fully sharded data parallelism outside of loops: weights are gathered where they are used, and again later.

A weight may be kept split (`parameter_layout`) and used whole. Gathered once, it would be in memory whole from the
forward pass to the backward pass, together with all other weights. So this pass gathers it anew for a use if another
such weight has been used since the use before. Loops over stacks of weights do this themselves, layer by layer
(`control_flow/loops/`).

With weights w and v, (gather w, use w, gather v, use v, v's gradient, w's gradient) becomes (gather w, use w, gather v,
use v, v's gradient, gather w again, w's gradient). Between v's two uses no other weight is used, so they share one
gather. Between w's uses v is used. The new plan sends w twice and never holds both weights.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import TypeGuard

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.plan import Collective, Compute, Instruction, Plan, ReadVariable, Value, walk


def gather_weights_again(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which no gathered weight stays in memory while another is used, where weights are kept
    split.
    """
    if not options.gathers_weights_again:
        return plan
    weights = _gathered_weights(plan)
    every_use = sorted((position, weight.name) for weight in weights for position in weight.uses)
    numbers = itertools.count(1 + max((v.index for i, _ in walk(plan.instructions) for v in i.outputs), default=0))
    added: dict[int, list[Instruction]] = {}
    renamed: dict[int, dict[Value, Value]] = {}
    for weight in weights:
        for uses in list(_groups(weight, every_use))[1:]:
            # The user's cast and slice are made again with the gather, or their results would stay instead.
            again = list(_made_again(weight, plan.instructions[uses[0]], numbers))
            added.setdefault(uses[0], []).extend(again)
            for position in uses:
                renamed.setdefault(position, {})[weight.value] = again[-1].outputs[0]
    instructions: list[Instruction] = []
    for position, instruction in enumerate(plan.instructions):
        instructions += added.get(position, [])
        instructions.append(_with_inputs(instruction, renamed.get(position, {})))
    return dataclasses.replace(plan, instructions=tuple(instructions))


@dataclasses.dataclass(frozen=True)
class _Weight:
    """A variable as it is used: its whole value, the instructions that make it from the slice read, and its uses."""

    name: str
    value: Value
    made_by: tuple[Compute | Collective, ...]
    uses: tuple[int, ...]


def _gathered_weights(plan: Plan) -> list[_Weight]:
    """Returns the weights that only the program's own instructions use: a loop uses a weight in every iteration."""
    made: dict[Value, tuple[str, tuple[Compute | Collective, ...]]] = {}
    uses: dict[Value, list[int]] = {}
    kept = {*plan.fetches, *(c.value for c in plan.checks)}
    for position, instruction in enumerate(plan.instructions):
        if isinstance(instruction, ReadVariable):
            made[instruction.output] = (instruction.name, ())
        elif _gathers_or_converts(instruction) and instruction.inputs[0] in made:
            name, before = made[instruction.inputs[0]]
            made[instruction.outputs[0]] = (name, (*before, instruction))
        elif isinstance(instruction, Compute | Collective):
            for value in dict.fromkeys(instruction.inputs):
                uses.setdefault(value, []).append(position)
        else:
            # Loops gather what they use by themselves, layer by layer.
            kept.update(instruction.inputs)
    return [
        _Weight(name, value, made_by, tuple(uses[value]))
        for value, (name, made_by) in made.items()
        if value in uses and value not in kept and any(isinstance(i, Collective) for i in made_by)
    ]


def _gathers_or_converts(instruction: Instruction) -> TypeGuard[Compute | Collective]:
    if isinstance(instruction, Collective):
        return isinstance(instruction.step, AllGather)
    if not isinstance(instruction, Compute) or len(instruction.inputs) != 1 or len(instruction.outputs) != 1:
        return False
    return instruction.facts.is_view or instruction.facts.is_cast or instruction.facts.only_moves


def _groups(weight: _Weight, every_use: Sequence[tuple[int, str]]) -> Iterator[list[int]]:
    """Yields the uses of a weight, grouped where no other weight is used in between.

    `every_use`: the positions of all weights' uses in order, each with the weight's name.
    """
    group: list[int] = []
    for position in weight.uses:
        start = bisect.bisect_left(every_use, (group[-1] + 1,)) if group else 0
        between = range(start, bisect.bisect_left(every_use, (position,)))
        if group and any(every_use[n][1] != weight.name for n in between):
            yield group
            group = []
        group.append(position)
    yield group


def _made_again(weight: _Weight, user: Instruction, numbers: Iterator[int]) -> Iterator[Compute | Collective]:
    """Yields the instructions that make the weight once more, on behalf of an instruction that uses it."""
    known: dict[Value, Value] = {}
    for instruction in weight.made_by:
        (output,) = instruction.outputs
        known[output] = dataclasses.replace(output, index=next(numbers))
        again = _with_inputs(dataclasses.replace(instruction, operation=user.operation), known)
        yield _with_output(again, known[output])


def _with_inputs(instruction: Instruction, renamed: dict[Value, Value]) -> Instruction:
    if isinstance(instruction, Collective):
        return dataclasses.replace(instruction, input=renamed.get(instruction.input, instruction.input))
    if isinstance(instruction, Compute) and renamed:
        return dataclasses.replace(instruction, inputs=tuple(renamed.get(v, v) for v in instruction.inputs))
    return instruction


def _with_output(instruction: Instruction, output: Value) -> Compute | Collective:
    if isinstance(instruction, Collective):
        return dataclasses.replace(instruction, output=output)
    assert isinstance(instruction, Compute)
    return dataclasses.replace(instruction, outputs=(output,))
