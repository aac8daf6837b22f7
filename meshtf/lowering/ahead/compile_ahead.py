"""Compiles a plan for a TPU topology that need not be present, and explains the compiler's refusals in the user's
terms."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.errors import CompilationError, DeviceError
from meshtf.lowering.ahead.changes import PlanWith
from meshtf.lowering.ahead.compilation import Compilation, CompiledMemory
from meshtf.lowering.ahead.refusals import refused_by_compiler, too_large
from meshtf.lowering.emit.scopes import origins, scope_name
from meshtf.lowering.emit.xla.oversized import oversized, says_oversized
from meshtf.lowering.report.memory.compiled_memory import compiled_peak_memory
from meshtf.mesh_impl.tpu.ahead_compiler import CompilerAnswer, Waiting, compile_ahead, libtpu_version
from meshtf.mesh_impl.tpu.topology import TpuTopology
from meshtf.ops.fourier.fft import FourierOperation
from meshtf.planning.plan import Plan, walk

_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


@dataclasses.dataclass(frozen=True)
class ToCompile:
    """A program: its name, its plan, its HLO, and the shape of its mesh.

    plan_with: returns its plan with a change.
    """

    program: str
    plan: Plan
    hlo: bytes
    mesh_shape: Shape
    plan_with: PlanWith


def compile_for(wanted: ToCompile, topology: TpuTopology, waiting: Waiting) -> Compilation:
    """Compiles a program with libtpu. Nothing runs, and no TPU is needed.

    Raises:
      DeviceError: the program takes more memory than a core has, the mesh does not fit, or libtpu is not installed.
      CompilationError: the compiler refuses an operation, which is named with the user's line, or the program is itself
        too large.
    """
    places = topology.places(wanted.mesh_shape)
    version = libtpu_version(topology)
    answer = compile_ahead(wanted.hlo, wanted.program, topology, places, waiting)
    if says_oversized(answer.refused):
        text = oversized(answer.refused, wanted.program, str(topology), wanted.plan, len(wanted.hlo))
        raise CompilationError(text)
    if answer.refused.startswith(_OUT_OF_MEMORY):
        raise DeviceError(too_large(answer.refused, wanted.program, wanted.plan, topology, wanted.plan_with))
    if answer.refused:
        scopes = origins(wanted.plan.instructions)
        transforms = _wide_transforms(wanted.plan)
        raise CompilationError(refused_by_compiler(answer.refused, wanted.program, topology, scopes, transforms))
    return _compilation(wanted, topology, answer, version)


def _wide_transforms(plan: Plan) -> list[str]:
    """The name scopes of Fourier transforms of float64 or complex128 numbers."""
    numbered = enumerate(i for i, _ in walk(plan.instructions))
    return [
        scope_name(number, i)
        for number, i in numbered
        if isinstance(i.operation, FourierOperation) and {v.dtype for v in i.inputs} & {tf.float64, tf.complex128}
    ]


def _compilation(wanted: ToCompile, topology: TpuTopology, answer: CompilerAnswer, version: str) -> Compilation:
    memory = {name: answer.memory[name] for name in ("arguments", "results", "aliased", "temporaries", "code", "peak")}
    return Compilation(
        program=wanted.program,
        topology=str(topology),
        mesh=tuple((d.name, d.size) for d in wanted.mesh_shape),
        cores=wanted.mesh_shape.size,
        memory=CompiledMemory(**memory, available=topology.generation.memory_bytes),
        planned_peak=compiled_peak_memory(wanted.plan).total,
        flops=answer.cost.get("flops"),
        bytes_accessed=answer.cost.get("bytes_accessed"),
        seconds=answer.cost.get("seconds"),
        compile_seconds=answer.seconds,
        is_cached=answer.is_cached,
        libtpu=version,
        hlo=answer.hlo,
    )
