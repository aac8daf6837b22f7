"""A step on the devices of this process. It runs alone, and its errors are in the user's terms."""

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
    """Holds the step, under the program's name, while a program runs.

    Raises:
      UsageError: if another thread is inside a step.
      CollectiveError: if a collective failed or timed out, now or earlier in this process.
      ProcessLostError: if a process of the cluster is gone. It is named, with the collective and line that waited for
        it.
      ExecutionError: if an operation failed. It is named, with the user's line.
    """
    with step_in_progress(f'program "{program}"'):
        try:
            yield
        except tf.errors.OpError as error:
            cluster = collective_runtime().cluster
            lost = cluster.explained_loss() if cluster is not None and may_be_a_loss(error) else None
            raise translate(error, origins(plan.instructions), lost and str(lost)) from None
