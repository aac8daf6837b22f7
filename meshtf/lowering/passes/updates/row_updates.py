"""Makes updates of rows wait for the program's checks, and keep the rows if one fails.

Without that, a failed check would have to undo the update, and the program would hold a whole table twice.
"""

from __future__ import annotations

import dataclasses

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.updates.update_fusion import in_order, needed_by_checks
from meshtf.ops.indexing.row_update import RowUpdate
from meshtf.planning.plan import Compute, Instruction, Plan


def guard_row_updates(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which updates of rows have the program's checks among their inputs."""
    if not plan.checks or not any(isinstance(i, Compute) and isinstance(i.emit, RowUpdate) for i in plan.instructions):
        return plan
    needed = needed_by_checks(plan)
    guards = tuple(dict.fromkeys(c.value for c in plan.checks))

    def guarded(instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Compute) or not isinstance(instruction.emit, RowUpdate) or instruction in needed:
            return instruction
        emit = dataclasses.replace(instruction.emit, guards=len(guards))
        return dataclasses.replace(instruction, inputs=(*instruction.inputs, *guards), emit=emit)

    return dataclasses.replace(plan, instructions=tuple(in_order([guarded(i) for i in plan.instructions])))
