"""Emits a plan as one XLA program, the same for every core."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from meshtf.lowering.emit.core import TracedCore
from meshtf.lowering.emit.core_program import CoreProgram, LocalWork
from meshtf.lowering.emit.feeds_and_fetches import NO_CHECK_FAILED
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.emit.variable_slices import SlicesByValue
from meshtf.lowering.emit.xla.done_before_loops import done_before_loops
from meshtf.lowering.emit.xla.layers import carried_in_parts, emit_layers_or_loop, values_given
from meshtf.lowering.emit.xla.platform_kernels import LocalCompute, compute_on
from meshtf.mesh_impl.pjrt.xla_collectives import XlaCollectives
from meshtf.planning import core_positions
from meshtf.planning.plan import Compute, Loop, Plan, Value
from meshtf.tensorflow_private.xla_operations import replica_id, tied_together


def emit_for_xla(
    plan: Plan, feeds: Sequence[tf.Tensor], slices: Sequence[tf.Tensor], earlier: tf.Tensor, platform: str = ""
) -> list[tf.Tensor]:
    """Emits the program of every core, in a trace that XLA compiles.

    Replica number c of the program is core c, and all differences between cores depend on this number. The collectives
    are XLA's.

    Args:
      plan: the program's plan.
      feeds: the slices that the core is fed, in the layouts of the plan.
      slices: this core's slices of the variables, in the order of `plan.variable_names`.
      earlier: the index of a check that failed in an earlier run, an int32 scalar. Unless it is -1, nothing is
        assigned, and the program returns this index.
      platform: XLA's name of the platform that runs the program, whose own kernels the program may use; "": any
        platform, without such kernels.

    Returns:
      The core's slices of the fetches; the index of the check that failed, or -1; and the new slices of the assigned
      variables, in the order of `slices`.
    """
    mesh_shape = plan.mesh_shape
    everyone = [list(core_positions.coordinates(core, mesh_shape).values()) for core in range(mesh_shape.size)]
    table = tf.constant(everyone, tf.int32, [mesh_shape.size, mesh_shape.ndims])
    variables = SlicesByValue(dict(zip(plan.variable_names, slices, strict=True)))
    emit_inner = functools.partial(_emit_loop_when_ready, done_before_loops(plan), values_given(plan), platform)
    body = CoreProgram(
        PlanFacts.of(plan, writes_in_place=False),
        TracedCore(plan, tf.gather(table, replica_id())),
        XlaCollectives(mesh_shape),
        variables,
        LocalWork(functools.partial(_compute_when_ready, compute_on(platform)), emit_inner),
        may_assign=tf.equal(earlier, NO_CHECK_FAILED),
        in_parts=carried_in_parts(plan),
    )
    *fetches, failed = body.run(dict(zip((f.name for f in plan.feeds), feeds, strict=True)))
    assigned = [variables.assigned[name] for name in assigned_names(plan)]
    return [*fetches, tf.where(tf.equal(earlier, NO_CHECK_FAILED), failed, earlier), *assigned]


def _compute_when_ready(
    compute: LocalCompute, core: TracedCore, instruction: Compute, slices: Sequence[tf.Tensor]
) -> Any:
    """Emits local work as `compute` does. A value that waits for others goes through a barrier instead.

    XLA treats the value after the barrier as a different one, so it merges no work on the two.
    """
    return tied_together(slices)[0] if instruction.facts.waits else compute(core, instruction, slices)


def _emit_loop_when_ready(
    done_before: Mapping[Loop, Sequence[Value]],
    given: Collection[Value],
    platform: str,
    program: CoreProgram,
    loop: Loop,
) -> None:
    """Emits a loop that begins when all values that it waits for exist. Without this, XLA would choose its own order.

    Args:
      done_before: the values that must exist when a loop begins, keyed by loop.
      given: values that exist when the program starts, and stay in memory.
      platform: XLA's name of the platform that runs the program; "": any.
      program: the core's program.
      loop: the loop.
    """
    if loop in done_before:
        values = list(dict.fromkeys([*(c.initial for c in loop.carried), *done_before[loop]]))
        tied = tied_together([program.slices[v] for v in values])
        program.slices.update(zip(values, tied, strict=True))
    emit_layers_or_loop(program, loop, given, platform)


def assigned_names(plan: Plan) -> list[str]:
    """The names of the variables whose new values a program returns, in order."""
    assigned = {i.name for i in plan.assignments}
    return [name for name in plan.variable_names if name in assigned]
