"""Finds products that a plan does before a loop that does not need them, such as gradients of the last layer's weights.

XLA would do them when their results are needed, after the loop, and keep their operands until then. For a table of
embeddings these are the logits and their gradient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshtf.planning.plan import Compute, Feed, Instruction, Loop, Plan, ReadVariable, Value


def done_before_loops(plan: Plan) -> Mapping[Loop, Sequence[Value]]:
    """The results that must exist when a loop begins, for each loop that is inside no other loop.

    They take less memory than the values that they are made of. Variables and feeds do not count, since they stay in
    memory anyway.
    """
    producers = {v: i for i in plan.instructions for v in i.outputs if not isinstance(i, Feed | ReadVariable)}
    waiting: list[Compute] = []
    found: dict[Loop, Sequence[Value]] = {}
    for instruction in plan.instructions:
        if isinstance(instruction, Loop) and instruction.carried and waiting:
            needed = _needed_by(instruction, producers)
            found[instruction] = [v for i in waiting if i not in needed for v in i.outputs]
            waiting.clear()
        elif isinstance(instruction, Compute) and instruction.facts.products and _is_less(instruction, producers):
            waiting.append(instruction)
    return {loop: values for loop, values in found.items() if values}


def _is_less(instruction: Instruction, producers: Mapping[Value, Instruction]) -> bool:
    made_of = sum(v.slice_bytes for v in instruction.inputs if v in producers)
    return sum(v.slice_bytes for v in instruction.outputs) < made_of


def _needed_by(instruction: Instruction, producers: Mapping[Value, Instruction]) -> set[Instruction]:
    found: set[Instruction] = set()
    waiting = [instruction]
    while waiting:
        for value in waiting.pop().inputs:
            producer = producers.get(value)
            if producer is not None and producer not in found:
                found.add(producer)
                waiting.append(producer)
    return found
