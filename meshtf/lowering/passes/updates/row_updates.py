"""Updates of rows may write to the variables' memory: each waits for the program's checks, and keeps rows if one fails.

Without that, an update would copy a whole table, so that a failed check could leave the variable as it was.
"""

from __future__ import annotations

import dataclasses

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.updates.update_fusion import in_order, needed_by_checks
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.plan import Compute, Instruction, Plan


def guard_row_updates(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which updates of rows have the program's checks among their inputs."""
    if not plan.checks or not any(_is_row_update(i) for i in plan.instructions):
        return plan
    needed = needed_by_checks(plan)
    guards = tuple(dict.fromkeys(c.value for c in plan.checks))

    def guarded(instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Compute) or not isinstance(instruction.emit, RowUpdate) or instruction in needed:
            return instruction
        emit = dataclasses.replace(instruction.emit, guards=len(guards))
        return dataclasses.replace(instruction, inputs=(*instruction.inputs, *guards), emit=emit)

    return dataclasses.replace(plan, instructions=tuple(in_order([guarded(i) for i in plan.instructions])))


def _is_row_update(instruction: Instruction) -> bool:
    return isinstance(instruction, Compute) and isinstance(instruction.emit, RowUpdate)
