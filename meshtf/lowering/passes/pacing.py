"""Limits how far computing and communicating get ahead of each other.

Within a core TensorFlow runs whatever is ready. Gathering a weight needs no computed value, so all weights would be
gathered first. Computing gradients needs nothing from other cores, so with slow communication all gradients would wait
to be sent at once. Either takes the memory that splitting was to save. So a collective waits for heavy work that stands
before it in the plan, and heavy work waits for a collective. It waits for one so far back that few bytes are moved, and
made by updates, in between. Within that distance they run in any order, and at the same time where devices can.

For example, six weights of 256 KiB are each gathered before their product, with 512 KiB ahead allowed. The fourth
gather waits for the first product, after which the first weight's memory is free. The pass only says which instruction
waits for which. Emission makes it a control dependency, and the report's orders (`execution_orders.py`) keep to it.
"""

from __future__ import annotations

import collections
import dataclasses

from meshtf.lowering.passes.buckets import is_light
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.updates.early_updates import before_assignments
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.plan import Collective, Compute, Instruction, Plan


def pace(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which an instruction may also wait for an earlier one that does not make its inputs.

    Each waits for an earlier instruction of the same plan, so cores that execute one plan never wait in a circle.
    """
    awaited: dict[Instruction, Compute | Collective] = {}
    moved, made = 0, 0
    work, sent = _Passed(), _Passed()
    updates = set(before_assignments(plan))
    for instruction in plan.instructions:
        if isinstance(instruction, Collective):
            if (last := work.last_before(moved - options.most_bytes_ahead)) is not None:
                awaited[instruction] = last
            # Either side of a collective may be the larger one, and both are in memory while it runs.
            moved += max(instruction.input.slice_bytes, instruction.output.slice_bytes)
            sent.add(instruction, moved + made)
        elif isinstance(instruction, Compute) and not is_light(instruction, options):
            if (last := sent.last_before(moved + made - options.most_bytes_ahead)) is not None:
                awaited[instruction] = last
            # An update of rows writes to its variables at once, and makes no value to wait for.
            if not isinstance(instruction.emit, RowUpdate):
                work.add(instruction, moved)
            if instruction in updates:
                # New values of variables stay in memory to the end of the step, so heavy updates count like bytes that
                # moved.
                made += sum(v.slice_bytes for v in instruction.outputs)
    return dataclasses.replace(plan, awaited=awaited)


class _Passed:
    """A queue of instructions, each with the bytes that had been moved when it was over."""

    def __init__(self) -> None:
        self._instructions: collections.deque[tuple[Compute | Collective, int]] = collections.deque()
        self._last: Compute | Collective | None = None

    def add(self, instruction: Compute | Collective, moved: int) -> None:
        self._instructions.append((instruction, moved))

    def last_before(self, moved: int) -> Compute | Collective | None:
        """Returns the last instruction that was over when at most `moved` bytes had been moved.

        Callers never pass a smaller `moved` than before.
        """
        while self._instructions and self._instructions[0][1] <= moved:
            self._last = self._instructions.popleft()[0]
        return self._last
