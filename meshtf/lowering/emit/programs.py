"""Which emitted program a plan becomes on which mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from meshtf.lowering.emit.emission import EmittedProgram
from meshtf.lowering.emit.tpu_program import TpuProgram
from meshtf.mesh_impl.spmd_mesh_impl import SpmdMeshImpl
from meshtf.mesh_impl.tpu_mesh_impl import TpuMeshImpl
from meshtf.planning.plan import Plan


def program_for(
    plan: Plan,
    mesh_impl: SpmdMeshImpl | TpuMeshImpl,
    slices: Mapping[str, Sequence[tf.Variable]],
    *,
    runs_once: bool = False,
) -> EmittedProgram | TpuProgram:
    """The plan, to be called. `slices`: of each variable, by core. `runs_once`: as of an `EmittedProgram`."""
    if isinstance(mesh_impl, TpuMeshImpl):
        return TpuProgram(plan, mesh_impl, slices)
    return EmittedProgram(plan, mesh_impl, slices, runs_once=runs_once)
