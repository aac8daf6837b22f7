"""From operations with layouts to a plan: they are lowered one by one, and passes change the plan."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.graph import Operation, Tensor
from meshtf.lowering.passes.gradient_sums import sum_gradients_in
from meshtf.lowering.passes.regathered_weights import gather_again
from meshtf.lowering.passes.update_fusion import fuse_updates
from meshtf.planning.layout_table import LayoutTable
from meshtf.planning.pending_sums import PendingSums
from meshtf.planning.plan import Plan
from meshtf.planning.planner import Planner, Storage


def make_plan(
    layouts: LayoutTable,
    storage: Storage,
    effects: Sequence[Operation],
    fetches: Sequence[Tensor],
    seed: int = 0,
    *,
    gradient_sum_dtype: tf.DType | None = None,
    gathers_again: bool = False,
) -> Plan:
    """Plans the operations that the effects and the fetches need, in program order; assigns only if some effect is."""
    operations = needed([*effects, *(t.operation for t in fetches)])
    pending_sums = PendingSums(operations, fetches, layouts)
    planner = Planner(layouts, pending_sums, storage, seed)
    for operation in operations:
        planner.lower(operation)
    trained = {v.full_name: v.shape for v in operations[0].graph.trainable_variables} if operations else {}
    plan = sum_gradients_in(planner.plan(fetches), gradient_sum_dtype, trained)
    plan = fuse_updates(gather_again(plan) if gathers_again else plan)
    # A fetch may be an assignment's output, or need one.
    return plan if effects else plan.without_assignments()


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
