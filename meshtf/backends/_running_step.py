"""A step on the devices of this process. Only one runs at a time. Errors name the user's program and line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from meshtf.lowering.emit.scopes import origins
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime, step_in_progress
from meshtf.mesh_impl.spmd.step_errors import may_be_a_loss, translate
from meshtf.planning.plan import Plan


@contextlib.contextmanager
def running_step(program: str, plan: Plan) -> Iterator[None]:
    """Locks the step while a program runs.

    Raises:
      UsageError: if another thread is inside a step.
      CollectiveError: if a collective failed or timed out, now or earlier in this process.
      ProcessLostError: if a process of the cluster is gone. The message names it, and the collective and line that
        waited for it.
      ExecutionError: if an operation failed. The message names it and the user's line.
    """
    with step_in_progress(f'program "{program}"'):
        try:
            yield
        except tf.errors.OpError as error:
            cluster = collective_runtime().cluster
            lost = cluster.explained_loss() if cluster is not None and may_be_a_loss(error) else None
            raise translate(error, origins(plan.instructions), lost and str(lost)) from None
