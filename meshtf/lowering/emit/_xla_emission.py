"""A plan as one program for XLA, the same on every core."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.lowering.emit._done_before_loops import done_before_loops
from meshtf.lowering.emit.core_program import CoreProgram, TracedCore
from meshtf.lowering.emit.core_results import NO_CHECK_FAILED
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByValue
from meshtf.mesh_impl.tpu.xla_collectives import XlaCollectives
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan
from meshtf.tensorflow_private.xla_operations import replica_id


def emit_for_xla(
    plan: Plan, feeds: Sequence[tf.Tensor], slices: Sequence[tf.Tensor], earlier: tf.Tensor
) -> list[tf.Tensor]:
    """Emits what every core runs, in a trace that XLA compiles.

    Replica number c of the program is core c: what differs between cores, it finds by that number. Its collectives are
    XLA's.

    Args:
      plan: of the program.
      feeds: what it is handed, in the layouts of the plan.
      slices: of the variables, this core's, in the order of `plan.variable_names`.
      earlier: int32 scalar, what an earlier run gave as the index of a check that failed. Unless it is -1 nothing is
        assigned, and the index is the same again.

    Returns:
      The core's slices of the fetches, the index of the check that failed, or -1, and the new slices of the variables
      that are assigned, in the same order.
    """
    mesh_shape = plan.mesh_shape
    everyone = [list(core_positions.coordinates(core, mesh_shape).values()) for core in range(mesh_shape.size)]
    table = tf.constant(everyone, tf.int32, [mesh_shape.size, mesh_shape.ndims])
    variables = SlicesByValue(dict(zip(plan.variable_names, slices, strict=True)))
    body = CoreProgram(
        PlanFacts.of(plan, writes_in_place=False),
        TracedCore(plan, tf.gather(table, replica_id())),
        XlaCollectives(mesh_shape),
        variables,
        may_assign=tf.equal(earlier, NO_CHECK_FAILED),
        done_before=done_before_loops(plan),
    )
    *fetches, failed = body.run(dict(zip((f.name for f in plan.feeds), feeds, strict=True)))
    assigned = [variables.assigned[name] for name in assigned_names(plan)]
    return [*fetches, tf.where(tf.equal(earlier, NO_CHECK_FAILED), failed, earlier), *assigned]


def assigned_names(plan: Plan) -> list[str]:
    """Of the variables that a program gives back, in their order."""
    assigned = {i.name for i in plan.assignments}
    return [name for name in plan.variable_names if name in assigned]
