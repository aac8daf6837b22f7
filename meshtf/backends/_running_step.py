"""A step on the devices of this process: alone, and with its errors in the user's terms."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import tensorflow as tf

from meshtf.lowering.emit.scopes import origins
from meshtf.mesh_impl.spmd.collective_runtime import step_in_progress
from meshtf.mesh_impl.spmd.step_errors import translate
from meshtf.planning.plan import Plan


@contextlib.contextmanager
def running_step(program: str, plan: Plan) -> Iterator[None]:
    """Held while a program runs, by its name.

    Raises:
      UsageError: another thread is inside a step.
      CollectiveError: a collective failed or timed out, now or earlier in this process.
      ExecutionError: an operation failed; names it and the user's line.
    """
    with step_in_progress(f'program "{program}"'):
        try:
            yield
        except tf.errors.OpError as error:
            raise translate(error, origins(plan.instructions)) from None
