"""A plan as one program for XLA, the same on every core."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops

from meshtf.lowering.emit.emission import CoreProgram, TracedCore
from meshtf.mesh_impl.tpu.xla_collectives import XlaCollectives
from meshtf.planning import core_positions
from meshtf.planning.plan import Plan


def emit_for_xla(plan: Plan, feeds: Sequence[tf.Tensor], handles: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Emits what every core runs, in a trace that XLA compiles.

    Replica number c of the program is core c: what differs between cores, it finds by that number. Its collectives are
    XLA's.

    Args:
      plan: of the program.
      feeds: the arrays handed to it, whole.
      handles: of this core's slices of the variables, in the order of `plan.variable_names`.

    Returns:
      The core's slices of the fetches, and the index of the check that failed, or -1.
    """
    mesh_shape = plan.mesh_shape
    everyone = [list(core_positions.coordinates(core, mesh_shape).values()) for core in range(mesh_shape.size)]
    table = tf.constant(everyone, tf.int32, [mesh_shape.size, mesh_shape.ndims])
    body = CoreProgram(
        plan,
        TracedCore(plan, tf.gather(table, gen_xla_ops.xla_replica_id())),
        XlaCollectives(mesh_shape),
        dict(zip(plan.variable_names, handles, strict=True)),
    )
    return body.run(dict(zip((f.name for f in plan.feeds), feeds, strict=True)))
