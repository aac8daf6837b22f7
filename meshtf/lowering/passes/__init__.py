"""The list of all passes, in the order in which they run. A pass changes costs, but never results.

Each of `PLAN_PASSES` turns one plan into another. To add a pass, write one function in its own file, and one line here
with the reason for its place in the list.

Layouts are chosen before a program is planned. `Lowering` calls `updates/weight_update_sharding.py` for that, which
depends on the pending sums. For the updates that it could not divide, `planning/layouts/divided_layouts.py` chooses
mesh axes to take apart, and `weight_update_sharding` runs again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from meshtf.lowering.passes.buckets import bucket_collectives
from meshtf.lowering.passes.casts_in_loops import cast_inside_loops
from meshtf.lowering.passes.compiled_loops import compile_loops
from meshtf.lowering.passes.cut_feeds import cut_feeds
from meshtf.lowering.passes.dead_code import remove_dead_code
from meshtf.lowering.passes.gathered_reductions import gather_reductions
from meshtf.lowering.passes.gradient_sums import sum_gradients
from meshtf.lowering.passes.gradients_in_place import add_gradients_in_place
from meshtf.lowering.passes.pacing import pace
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.regathered_weights import gather_weights_again
from meshtf.lowering.passes.results_everywhere import gather_results
from meshtf.lowering.passes.unasked_assignments import remove_unasked_assignments
from meshtf.lowering.passes.unrolled_layers import unroll_layers
from meshtf.lowering.passes.updates.early_updates import update_early
from meshtf.lowering.passes.updates.row_updates import guard_row_updates
from meshtf.lowering.passes.updates.update_fusion import fuse_updates
from meshtf.planning.plan import Plan

PlanPass: TypeAlias = Callable[[Plan, PassOptions], Plan]

PLAN_PASSES: tuple[PlanPass, ...] = (
    # First, so that no other pass spends time on unread values, or counts dead code as a reader.
    remove_dead_code,
    # After dead code is gone, which would count as a reader of the feeds.
    cut_feeds,
    # After dead code is gone, which would count as a reader of the stacks.
    cast_inside_loops,
    # Before fusion, which hides casts, and before buckets, whose members have one dtype.
    sum_gradients,
    # Before fusion, which may take a gathered weight as an operand.
    gather_weights_again,
    # When casts and collectives are where they will be: only work on single parts is left between a stack and a sum.
    add_gradients_in_place,
    # While each step of an update is an instruction by itself.
    fuse_updates,
    # Beside the fusion of other updates, since both take the program's checks as inputs.
    guard_row_updates,
    # After every pass that looks for updates, so that a program that assigns nothing computes the same numbers.
    remove_unasked_assignments,
    # When updates have their final form and each collective still stands alone: one inside a bucket cannot move.
    update_early,
    # After the passes that can do without a fetch's other slices, and before buckets, in which small results travel.
    gather_results,
    # Before buckets, in which gathers travel as sums do.
    gather_reductions,
    # When collectives stand at their final places: collectives that are close to one another then travel together.
    bucket_collectives,
    # When it is known which collectives stay inside loops, and no later pass replaces an instruction.
    compile_loops,
    # When no later pass makes an instruction, so that all are counted.
    unroll_layers,
    # Last, because it needs the final order to say which instruction waits for which.
    pace,
)


def run_passes(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan after all passes."""
    for change in PLAN_PASSES:
        plan = change(plan, options)
    return plan
