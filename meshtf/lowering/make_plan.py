"""From operations with layouts to a plan: they are lowered one by one, and passes change the plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from meshtf.graph import Operation, Tensor
from meshtf.lowering.passes import run_passes
from meshtf.lowering.passes.pass_options import DEFAULT_PASS_OPTIONS, PassOptions
from meshtf.planning.layout_table import LayoutTable
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Plan
from meshtf.planning.planner import Planner
from meshtf.planning.stored_variables import Storage


def make_plan(
    layouts: LayoutTable,
    storage: Storage,
    effects: Sequence[Operation],
    fetches: Sequence[Tensor],
    seed: int = 0,
    options: PassOptions = DEFAULT_PASS_OPTIONS,
) -> Plan:
    """Plans the operations that the effects and the fetches need, in program order; assigns only if some effect is."""
    operations = needed([*effects, *(t.operation for t in fetches)])
    pending_sums = PendingSums(operations, fetches, layouts)
    planner = Planner(layouts, pending_sums, storage, seed)
    for operation in operations:
        planner.lower(operation)
    trained = {v.full_name: v.shape for v in operations[0].graph.trainable_variables} if operations else {}
    return run_passes(planner.plan(fetches), dataclasses.replace(options, assigns=bool(effects), trained=trained))


def needed(roots: Sequence[Operation]) -> list[Operation]:
    """The operations that these need, themselves included, in program order."""
    if not roots:
        return []
    wanted = set(roots)
    for operation in reversed(roots[0].graph.operations):
        if operation in wanted:
            wanted.update(x.operation for x in operation.inputs)
            wanted.update(operation.dependencies)
    return [o for o in roots[0].graph.operations if o in wanted]
