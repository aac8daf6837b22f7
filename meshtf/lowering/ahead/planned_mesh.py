"""A mesh with only what planning needs. It is used to plan a program with options other than it was lowered with."""

from __future__ import annotations

import dataclasses

from meshtf.dimension import Shape
from meshtf.layout import LayoutRules
from meshtf.mesh_impl.mesh_options import MeshOptions
from meshtf.planning.process_spans import ProcessOfCore


@dataclasses.dataclass(frozen=True)
class PlannedMesh:
    """A mesh to plan for: the members of `MeshImpl` that plans depend on."""

    shape: Shape
    layout_rules: LayoutRules
    options: MeshOptions
    devices: tuple[str, ...] = ()
    process_of_core: ProcessOfCore = ()
    compiles_programs: bool = False
    unrolls_layers: bool = False
