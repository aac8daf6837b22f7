"""Refuses a program that needs more memory than is available, before it takes any."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from meshtf.errors import DeviceError
from meshtf.garbage_collection import garbage_collection_paused
from meshtf.lowering.report.accounting import stored_variables
from meshtf.lowering.report.memory.peak_memory import PeakMemory, peak_memory
from meshtf.lowering.report.memory.what_fits import FittingBatch, fitting_batch
from meshtf.mesh_impl.device_names import local_cores
from meshtf.mesh_impl.host.host_memory import HostMemory, host_memory
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.planning.plan import Plan, walk

_TOO_LARGE = """\
program "{program}" needs more memory than there is: {needed} on {cores}, and {limit} {available} GiB.
Each core takes {each} GiB at its peak{where}, {variables} GiB of it variables.{fitting}
A mesh and a layout that split more, a smaller batch, micro-batches or recomputation need less; report() shows more.
The need is counted from the plan. To run anyway, give the mesh check_memory=False, or in gin
Training.check_memory = False."""

_GIB = 2**30


@garbage_collection_paused()
def check_memory(plan: Plan, mesh_impl: MeshImpl, program: str, there: Collection[str], besides: int = 0) -> None:
    """Compares the memory that all cores need at once with the machine's free memory, if the cores are its CPUs.

    Args:
      plan: the program's plan.
      mesh_impl: the mesh on which it is to run.
      program: its name.
      there: names of variables whose memory is already allocated.
      besides: bytes that something else takes at the same time.

    Raises:
      DeviceError: if the program needs more. The message says how much, and what to do.
    """
    devices = mesh_impl.devices if mesh_impl.options.check_memory else ()
    devices = [devices[core] for core in local_cores(devices)]
    if not devices or not all("CPU" in device.upper() for device in devices):
        return
    memory = host_memory()
    if _certainly_enough(plan, len(devices)) + besides <= memory.available:
        return
    taken = sum(value.slice_bytes for name, value in stored_variables(plan).items() if name in there)

    def bytes_of(plan: Plan) -> int:
        return (peak_memory(plan).total - taken) * len(devices) + _cut(plan) + besides

    needed = bytes_of(plan)
    if needed > memory.available:
        fitting = fitting_batch(plan, bytes_of, memory.available)
        need = _Need(needed, peak_memory(plan), taken, len(devices), with_batches=bool(besides))
        raise DeviceError(_message(program, need, memory, fitting))


@dataclasses.dataclass(frozen=True)
class _Need:
    """The memory that a program needs.

    bytes: those of all cores. peak: one core's. taken: a core's bytes that are allocated already. with_batches: whether
    batches that are made ahead are counted.
    """

    bytes: int
    peak: PeakMemory
    taken: int
    cores: int
    with_batches: bool


def _certainly_enough(plan: Plan, cores: int) -> int:
    """Returns bytes that suffice for all cores even if nothing is ever freed. Most programs pass this quick count."""
    made = sum(value.slice_bytes for instruction, _ in walk(plan.instructions) for value in instruction.outputs)
    # Twice, because some values are copied into another order. Once per core, because collectives hold what every core
    # sent.
    return (2 + cores) * cores * made + _cut(plan)


def _cut(plan: Plan) -> int:
    """Returns the bytes of arrays that are fed and cut. They are in memory beside the slices that cores receive."""
    return sum(f.output.shape.size * f.output.dtype.size for f in plan.feeds if f.output.layout.used)


def _message(program: str, need: _Need, memory: HostMemory, fitting: FittingBatch | None) -> str:
    peak, cores = need.peak, need.cores
    return _TOO_LARGE.format(
        program=program,
        needed=f"{need.bytes / _GIB:,.3g} GiB",
        cores=(f"{cores} cores" if cores > 1 else "1 core") + " with the batches made ahead" * need.with_batches,
        each=f"{(peak.total - need.taken) / _GIB:,.3g}",
        where="" if peak.operation is None else f" in {peak.operation.where}",
        variables=f"{max(peak.variables - need.taken, 0) / _GIB:,.3g}",
        fitting="" if fitting is None else f"\n{fitting.text()}",
        limit=memory.limit,
        available=f"{memory.available / _GIB:,.3g}",
    )
