"""How far computing and communicating get ahead of each other.

Within a core TensorFlow runs whatever is ready. Weights that are gathered to be used need nothing that is computed, so
all of them would be gathered first; gradients need nothing that other cores compute, so where communication is slow all
of them would wait for it at once. Either takes the memory that splitting them was to save. So a collective waits for
heavy work that stands before it in the plan, and heavy work for a collective: for one so far back that what the
collectives in between move, and what updates make in between, stays small. Ahead by less they run as they like, at the
same time where devices can.

Six weights of 256 KiB, each gathered before its product, with 512 KiB ahead allowed: the fourth gather waits for the
first product, by which its weight is done with. The pass only says who waits for whom; emission makes it a control
dependency, and the report's orders (`execution_orders.py`) keep to it.
"""

from __future__ import annotations

import collections
import dataclasses

from meshtf.lowering.passes.buckets import is_light
from meshtf.lowering.passes.early_updates import before_assignments
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.plan import Collective, Compute, Instruction, Plan


def pace(plan: Plan, options: PassOptions) -> Plan:
    """The plan with an earlier instruction that each waits for, besides those that make its inputs, where it has to.

    Every one waits for an earlier one of the same plan, so cores that execute the same plan never wait in a circle.
    """
    awaited: dict[Instruction, Compute | Collective] = {}
    moved, made = 0, 0
    work, sent = _Passed(), _Passed()
    updates = set(before_assignments(plan))
    for instruction in plan.instructions:
        if isinstance(instruction, Collective):
            if (last := work.last_before(moved - options.most_bytes_ahead)) is not None:
                awaited[instruction] = last
            moved += max(instruction.input.slice_bytes, instruction.output.slice_bytes)
            sent.add(instruction, moved + made)
        elif isinstance(instruction, Compute) and not is_light(instruction, options):
            if (last := sent.last_before(moved + made - options.most_bytes_ahead)) is not None:
                awaited[instruction] = last
            work.add(instruction, moved)
            if instruction in updates:
                made += sum(v.slice_bytes for v in instruction.outputs)
    return dataclasses.replace(plan, awaited=awaited)


class _Passed:
    """Instructions, each with how many bytes had been moved when it was over."""

    def __init__(self) -> None:
        self._instructions: collections.deque[tuple[Compute | Collective, int]] = collections.deque()
        self._last: Compute | Collective | None = None

    def add(self, instruction: Compute | Collective, moved: int) -> None:
        self._instructions.append((instruction, moved))

    def last_before(self, moved: int) -> Compute | Collective | None:
        """The last that was over when no more than so many bytes had been moved; they never become fewer."""
        while self._instructions and self._instructions[0][1] <= moved:
            self._last = self._instructions.popleft()[0]
        return self._last
