"""A step on the cores of a PJRT runtime. Only one thread may start a step at a time. Errors name the user's program."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from meshtf.errors import CompilationError, DeviceError, ExecutionError, ProcessLostError
from meshtf.lowering.emit.xla.oversized import oversized, says_oversized
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory
from meshtf.lowering.report.text_table import bytes_text
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime, step_in_progress
from meshtf.planning.plan import Plan

_FAILED = """\
program "{program}" failed on the cores of mesh [{mesh}]: {fact}
Restart the process; training resumes from its last checkpoint."""

_TOO_LARGE = """\
program "{program}" takes more memory than the cores of mesh [{mesh}] have left: {fact}
By the plan each core takes {peak} at its peak{where}. A layout that splits more, a smaller batch, micro-batches or \
recomputation need less. A stack of layers computes again what recompute="costly", "products" or "nothing" does not \
keep; layers in an mtf.layer_stack also make the program itself smaller. report() of the program lists what is \
largest; for a topology of TPUs its compile() also says what would fit.
Restart the process; training resumes from its last checkpoint."""

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"

_LOST = """\
{lost}. Program "{program}" waited for it. Start all processes again; training resumes from its last checkpoint"""

_LONGEST_FACT = 600


@contextlib.contextmanager
def running_on_pjrt(program: str, plan: Plan) -> Iterator[None]:
    """Locks the step while a program is compiled and started, and while the host waits for its results.

    Raises:
      UsageError: if another thread is inside a step.
      ProcessLostError: if a process of the cluster is gone.
      CompilationError: if the program itself is too large to be compiled.
      DeviceError: if the program or its results need more memory than a core has left.
      ExecutionError: if the runtime has failed.
    """
    with step_in_progress(f'program "{program}"'):
        try:
            yield
        except RuntimeError as error:
            runtime = sys.modules.get("meshtf.mesh_impl.pjrt.pjrt")
            is_of_runtime = runtime is not None and isinstance(error, runtime.PjrtError)
            cluster = collective_runtime().cluster
            if cluster is not None and (is_of_runtime or isinstance(error, ProcessLostError)):
                lost = cluster.explained_loss()
                if lost is not None:
                    raise ProcessLostError(_LOST.format(lost=lost, program=program)) from None
            if not is_of_runtime:
                raise
            if says_oversized(str(error)):
                cores = f"mesh [{plan.mesh_shape}]"
                raise CompilationError(oversized(str(error), program, cores, plan)) from None
            fact = str(error).strip()[:_LONGEST_FACT]
            if fact.startswith(_OUT_OF_MEMORY):
                peak = compiled_peak_memory(plan)
                where = "" if peak.operation is None else f" in {peak.operation.where}"
                needed = bytes_text(peak.total).strip()
                text = _TOO_LARGE.format(program=program, mesh=plan.mesh_shape, fact=fact, peak=needed, where=where)
                raise DeviceError(text) from None
            raise ExecutionError(_FAILED.format(program=program, mesh=plan.mesh_shape, fact=fact)) from None
