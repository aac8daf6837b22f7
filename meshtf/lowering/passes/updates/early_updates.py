"""Moves each update to where its gradient is made, so that the gradient's memory is free while others are made.

A program's updates come after all of its gradients, and its collectives run in program order. If the update of a weight
needs only its own gradient, its collectives and elementwise work move up to where that gradient is made.

(g2, g1, sum g2, sum g1, update w2, update w1) becomes (g2, sum g2, update w2, g1, sum g1, update w1). Then two
gradients are never in memory at once. An update that needs the norm of all gradients waits for the last of them and
stays where it is. All cores execute one plan and move alike, so their collectives still meet in one order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import Collective, Compute, Instruction, Plan, Value


def update_early(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which work that only updates need stands as early as it can."""
    producers = {v: i for i in plan.instructions for v in i.outputs}
    movable = before_assignments(plan)
    order = _Order(movable, producers, {i for i in movable if _widens(i)}, plan.instructions)
    for instruction in plan.instructions:
        order.add(instruction)
    order.add_late(producers[value] for value in (*plan.fetches, *(c.value for c in plan.checks)))
    return dataclasses.replace(plan, instructions=tuple(order.instructions))


def before_assignments(plan: Plan) -> list[Instruction]:
    """Returns the collectives and elementwise work that lead to assignments, in program order."""
    producers = {v: i for i in plan.instructions for v in i.outputs}
    found: set[Instruction] = set()
    waiting = [i.input for i in plan.assignments]
    while waiting:
        producer = producers[waiting.pop()]
        if producer not in found and is_part_of_update(producer):
            found.add(producer)
            waiting.extend(producer.inputs)
    return [i for i in plan.instructions if i in found]


def is_part_of_update(instruction: Instruction) -> bool:
    """Tells whether the instruction works element by element, or moves data."""
    if isinstance(instruction, Compute):
        return instruction.facts.is_elementwise_or_moves
    return isinstance(instruction, Collective)


def _widens(instruction: Instruction) -> bool:
    """Tells whether it only makes a value larger, as a cast to more bytes does. Such work is best done just before its
    use.
    """
    if not isinstance(instruction, Compute) or not instruction.facts.is_cast:
        return False
    return instruction.outputs[0].slice_bytes > instruction.inputs[0].slice_bytes


class _Order:
    """A new order of instructions. A movable one follows its inputs at once, and the others stay in program order.

    The instructions in `late` come just before the first one that needs them.
    """

    def __init__(
        self,
        movable: Sequence[Instruction],
        producers: Mapping[Value, Instruction],
        late: Collection[Instruction],
        instructions: Sequence[Instruction],
    ) -> None:
        self.instructions: list[Instruction] = []
        self._done: set[Instruction] = set()
        self._late = late
        # Work on variables and constants alone, such as a learning rate, comes when it is first needed.
        at_any_time: set[Instruction] = set()
        self._earlier = {i: [p for v in i.inputs if (p := producers[v]) in late] for i in instructions}
        self._missing: dict[Instruction, set[Instruction]] = {}
        self._after: dict[Instruction, list[Instruction]] = {}
        for instruction in [*(i for i in producers.values() if not i.inputs), *movable]:
            if instruction in late:
                continue
            needed = list(dict.fromkeys(self._before_late(producers[v], producers) for v in instruction.inputs))
            # They come before the late instructions, which may use their results.
            self._earlier[instruction] = [*(p for p in needed if p in at_any_time), *self._earlier[instruction]]
            self._missing[instruction] = {p for p in needed if p not in at_any_time}
            if not self._missing[instruction] and not isinstance(instruction, Collective):
                at_any_time.add(instruction)
            for producer in self._missing[instruction]:
                self._after.setdefault(producer, []).append(instruction)

    def _before_late(self, instruction: Instruction, producers: Mapping[Value, Instruction]) -> Instruction:
        """Returns the instruction itself, or for a late one the instruction that its input comes from."""
        while instruction in self._late:
            instruction = producers[instruction.inputs[0]]
        return instruction

    def add(self, instruction: Instruction) -> None:
        """Adds an instruction, unless it is there already, and then all that waited for it alone."""
        ready = [] if instruction in self._late else [instruction]
        while ready:
            now = ready.pop(0)
            if now in self._done:
                continue
            self._append(now)
            for following in self._after.get(now, ()):
                self._missing[following].discard(now)
                if not self._missing[following]:
                    ready.append(following)

    def add_late(self, instructions: Iterable[Instruction]) -> None:
        """Adds the late ones among these instructions that nothing has needed yet."""
        for instruction in instructions:
            if instruction in self._late and instruction not in self._done:
                self._append(instruction)

    def _append(self, instruction: Instruction) -> None:
        waiting = [instruction]  # the last one is next: it, or what it needs first
        while waiting:
            missing = next((i for i in self._earlier.get(waiting[-1], ()) if i not in self._done), None)
            if missing is not None:
                waiting.append(missing)
                continue
            self._done.add(waiting[-1])
            self.instructions.append(waiting.pop())
