"""The mesh of TPU cores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meshtf.backends.tpu_mesh_impl import TpuMeshImpl
from meshtf.call_sites import says_where
from meshtf.compat.mesh_tensorflow._layout import rules_of_mesh
from meshtf.compat.mesh_tensorflow._mesh_impls import WrappedMeshImpl
from meshtf.dimension import ShapeLike
from meshtf.errors import DeviceError
from meshtf.graph import shape_of
from meshtf.layout import LayoutLike


class SimdMeshImpl(WrappedMeshImpl):
    """A mesh of TPU cores, real or virtual (`meshtf.virtual_tpu`): a `meshtf.TpuMeshImpl`.

    Args:
      shape: the mesh's named shape.
      layout: which dimension is split over which mesh axis; rules for axes that the mesh lacks are left out.
      devices: ignored: the TPU's own.
      device_assignment: ignored: this process starts the TPU itself.
      logical_to_physical: refused; cores are laid onto the TPU's torus so that neighbours have links.

    Raises:
      DeviceError: there is no TPU, or `logical_to_physical` is given.
      LayoutError: the rules do not fit the mesh.
    """

    @says_where
    def __init__(
        self,
        shape: ShapeLike,
        layout: LayoutLike,
        devices: Sequence[str] | None = None,
        device_assignment: Any = None,
        logical_to_physical: Sequence[int] | None = None,
    ) -> None:
        if logical_to_physical is not None:
            raise DeviceError(
                "logical_to_physical orders cores by hand; meshtf lays a mesh onto the TPU's torus: leave it out, "
                'or give meshtf.TpuMeshImpl(shape, layout, physical_torus="4x4")'
            )
        named = shape_of(shape)
        super().__init__(TpuMeshImpl(named, rules_of_mesh(layout, named)))
