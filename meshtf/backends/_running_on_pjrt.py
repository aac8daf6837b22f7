"""A step on the cores of a PJRT runtime: started by one thread at a time, and with its errors in the user's terms."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from meshtf.errors import ExecutionError
from meshtf.mesh_impl.spmd.collective_runtime import step_in_progress

_FAILED = """\
program "{program}" failed on its cores: {fact}
Restart the process; training resumes from its last checkpoint."""

_LONGEST_FACT = 600


@contextlib.contextmanager
def running_on_pjrt(program: str) -> Iterator[None]:
    """Held while a program is started, and while its results are waited for.

    Raises:
      UsageError: another thread is inside a step.
      ExecutionError: the runtime has failed.
    """
    with step_in_progress(f'program "{program}"'):
        try:
            yield
        except RuntimeError as error:
            runtime = sys.modules.get("meshtf.mesh_impl.tpu.pjrt")
            if runtime is None or not isinstance(error, runtime.PjrtError):
                raise
            fact = str(error).strip()[:_LONGEST_FACT]
            raise ExecutionError(_FAILED.format(program=program, fact=fact)) from None
