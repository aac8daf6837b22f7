"""THE list of passes, in the order in which they run. Results stay as they are; costs change.

Before a program is planned, a pass may choose layouts (`LAYOUT_PASSES`); afterwards each makes a plan of a plan
(`PLAN_PASSES`). A new pass is one function in a file of its own and one line here, which says why it stands there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from meshtf.lowering.passes.buckets import bucket_collectives
from meshtf.lowering.passes.casts_in_loops import cast_inside_loops
from meshtf.lowering.passes.compiled_loops import compile_loops
from meshtf.lowering.passes.cut_feeds import cut_feeds
from meshtf.lowering.passes.dead_code import remove_dead_code
from meshtf.lowering.passes.early_updates import update_early
from meshtf.lowering.passes.gathered_reductions import gather_reductions
from meshtf.lowering.passes.gradient_sums import sum_gradients
from meshtf.lowering.passes.gradients_in_place import add_gradients_in_place
from meshtf.lowering.passes.pacing import pace
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.regathered_weights import gather_weights_again
from meshtf.lowering.passes.results_everywhere import gather_results
from meshtf.lowering.passes.unasked_assignments import remove_unasked_assignments
from meshtf.lowering.passes.update_fusion import fuse_updates
from meshtf.lowering.passes.weight_update_sharding import sharded_updates
from meshtf.planning.layouts.divided_layouts import parts_that_help
from meshtf.planning.plan import Plan

PlanPass: TypeAlias = Callable[[Plan, PassOptions], Plan]

LAYOUT_PASSES = (
    # Chooses layouts alone, from which the planner finds the collectives; it must know who leaves sums pending.
    sharded_updates,
    # Of what the first could not divide: says which axes of the mesh to take apart, after which the first runs again.
    parts_that_help,
)

PLAN_PASSES: tuple[PlanPass, ...] = (
    # First, so that no other spends time on what nobody reads, or takes it for a reader.
    remove_dead_code,
    # When it is known who reads what is fed.
    cut_feeds,
    # When it is known which loops still read a stack.
    cast_inside_loops,
    # Before fusion, which hides casts, and before buckets, whose members have one dtype.
    sum_gradients,
    # Before fusion, which may take a gathered weight as an operand.
    gather_weights_again,
    # When casts and collectives are where they will be: what is left between a stack and a sum works on each part.
    add_gradients_in_place,
    # While each step of an update is an instruction by itself.
    fuse_updates,
    # After all that looks for updates, so that a program that assigns nothing computes the same numbers.
    remove_unasked_assignments,
    # When updates are what they will be, and each collective still stands alone: one that travels cannot move.
    update_early,
    # After all that could do without a fetch's other slices, and before buckets, in which small results travel.
    gather_results,
    # Before buckets, in which gathers travel as sums do.
    gather_reductions,
    # When collectives stand where they are wanted: those that come close to one another travel together.
    bucket_collectives,
    # When it is known which collectives are left inside loops, and no instruction is put in another's place any more.
    compile_loops,
    # Last: it says who waits for whom in the order that is final.
    pace,
)


def run_passes(plan: Plan, options: PassOptions) -> Plan:
    """The plan after all passes."""
    for change in PLAN_PASSES:
        plan = change(plan, options)
    return plan
