"""A step on the cores of a PJRT runtime. Only one thread may start a step at a time. Errors name the user's program."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator

from meshtf.errors import CompilationError, DeviceError, ExecutionError, ProcessLostError
from meshtf.lowering.emit.xla.oversized import oversized, says_oversized
from meshtf.lowering.report.memory.what_fits import MemoryCount, largest_texts, what_fits
from meshtf.lowering.report.text_table import size_text
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime, step_in_progress
from meshtf.planning.plan import Plan

_FAILED = """\
program "{program}" failed on the cores of mesh [{mesh}]: {fact}
Restart the process; training resumes from its last checkpoint."""

_TOO_LARGE = """\
program "{program}" takes more memory than the cores of mesh [{mesh}] have left: {fact}
By the plan each core takes {peak} at its peak{where}, {variables} of it for variables. The largest at that point: \
{largest}.
{limit}A layout that splits more, a smaller batch, micro-batches or recomputation need less. A stack of layers \
computes again what recompute="costly", "products" or "nothing" does not keep; layers in an mtf.layer_stack also make \
the program itself smaller. For a topology of TPUs, compile() of the program also tries layouts and recomputation.
Restart the process; training resumes from its last checkpoint."""

_LIMIT = """\
Each core has {limit} for this process, which memory_fraction sets on GPUs, and other arrays take {others} of it."""

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"

_LOST = """\
{lost}. Program "{program}" waited for it. Start all processes again; training resumes from its last checkpoint"""

_LONGEST_FACT = 600
_MOST_NAMED = 3


@dataclasses.dataclass(frozen=True)
class CoreMemory:
    """The memory of the cores of this process.

    Attributes:
      count: how to count what a program needs of it.
      limit: the bytes that each core may hold. None if the runtime does not count them.
      used: the bytes that a core holds now. None if the runtime does not count them.
    """

    count: MemoryCount
    limit: int | None
    used: int | None


@contextlib.contextmanager
def running_on_pjrt(program: str, plan: Plan, memory: Callable[[], CoreMemory]) -> Iterator[None]:
    """Locks the step while a program is compiled and started, and while the host waits for its results.

    `memory` is asked only if there is too little.

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
                raise DeviceError(_too_large(fact, program, plan, memory())) from None
            raise ExecutionError(_FAILED.format(program=program, mesh=plan.mesh_shape, fact=fact)) from None


def _too_large(fact: str, program: str, plan: Plan, memory: CoreMemory) -> str:
    peak, largest = memory.count.peak(plan), largest_texts(plan, memory.count, _MOST_NAMED)
    limit = ""
    if memory.limit is not None:
        others = max((memory.used or 0) - peak.variables - peak.feeds, 0)
        fitting = what_fits(plan, memory.count, memory.limit - others)
        limit = f"{_LIMIT.format(limit=size_text(memory.limit), others=size_text(others))} {fitting}".rstrip() + "\n"
    return _TOO_LARGE.format(
        program=program,
        mesh=plan.mesh_shape,
        fact=fact,
        peak=size_text(peak.total),
        where="" if peak.operation is None else f" in {peak.operation.where}",
        variables=size_text(peak.variables),
        largest="; ".join(largest),
        limit=limit,
    )
