"""A step on the cores of a PJRT runtime: started by one thread at a time, and with its errors in the user's terms."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from meshtf.errors import ExecutionError, ProcessLostError
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime, step_in_progress

_FAILED = """\
program "{program}" failed on its cores: {fact}
Restart the process; training resumes from its last checkpoint."""

_LOST = """\
{lost}. Program "{program}" waited for it. Start all processes again; training resumes from its last checkpoint"""

_LONGEST_FACT = 600


@contextlib.contextmanager
def running_on_pjrt(program: str) -> Iterator[None]:
    """Held while a program is started, and while its results are waited for.

    Raises:
      UsageError: another thread is inside a step.
      ProcessLostError: a process of the cluster is gone.
      ExecutionError: the runtime has failed.
    """
    with step_in_progress(f'program "{program}"'):
        try:
            yield
        except RuntimeError as error:
            runtime = sys.modules.get("meshtf.mesh_impl.tpu.pjrt")
            is_of_runtime = runtime is not None and isinstance(error, runtime.PjrtError)
            cluster = collective_runtime().cluster
            if cluster is not None and (is_of_runtime or isinstance(error, ProcessLostError)):
                lost = cluster.explained_loss()
                if lost is not None:
                    raise ProcessLostError(_LOST.format(lost=lost, program=program)) from None
            if not is_of_runtime:
                raise
            fact = str(error).strip()[:_LONGEST_FACT]
            raise ExecutionError(_FAILED.format(program=program, fact=fact)) from None
