"""Meshes of TPU cores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshtf.backends.tpu_mesh_impl import TpuMeshImpl
from meshtf.call_sites import says_where
from meshtf.compat.mesh_tensorflow._dimension import Shape
from meshtf.compat.mesh_tensorflow._layout import rules_of_mesh
from meshtf.compat.mesh_tensorflow._mesh_impls import WrappedMeshImpl
from meshtf.dimension import ShapeLike, shape_of
from meshtf.errors import DeviceError, LayoutError
from meshtf.layout import LayoutLike


class SimdMeshImpl(WrappedMeshImpl):
    """A mesh of TPU cores, real or virtual (`meshtf.virtual_tpu`): a `meshtf.TpuMeshImpl`.

    Args:
      shape: the mesh's named shape.
      layout: which dimension is split over which mesh axis. Rules for axes that the mesh lacks are left out.
      devices: ignored. The mesh has the TPU's cores.
      device_assignment: ignored. This process starts the TPU itself.
      logical_to_physical: ignored. Cores are laid onto the TPU's torus so that neighbours have links, and their order
        changes no result. `meshtf.TpuMeshImpl(.., physical_torus="4x4")` sets the torus.
      allreduce_in_bfloat16_max_group_size: ignored. A sum has the dtype of its terms, however many they are.

    Raises:
      DeviceError: there is no TPU, or `logical_to_physical` does not have each core's number once.
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
        allreduce_in_bfloat16_max_group_size: int = 8,
    ) -> None:
        named = shape_of(shape)
        if logical_to_physical is not None and sorted(logical_to_physical) != list(range(named.size)):
            raise DeviceError(
                f"logical_to_physical has each of the numbers 0 to {named.size - 1} once, for mesh [{named}], and not "
                f"{list(logical_to_physical)}; leave it out: meshtf lays a mesh onto the TPU's torus itself"
            )
        super().__init__(TpuMeshImpl(named, rules_of_mesh(layout, named)))


class HierarchicalTiling:
    """A mesh whose axes are boxes of a TPU's physical axes. Cores along the last axis are neighbours.

    Args:
      spec: the name and the box sizes of each mesh axis. The first axis may have None, which means all that remains.
      physical_shape: the sizes of the TPU's axes.

    Raises:
      LayoutError: the boxes' sizes do not multiply to `physical_shape`.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> tiling = old.simd_mesh_impl.HierarchicalTiling([("dp", None), ("mp", [1, 2, 2])], [2, 2, 2])
      >>> tiling.mesh_shape, tiling.logical_to_physical
      (Shape[dp:2 mp:4], [0, 1, 2, 3, 4, 5, 6, 7])
    """

    def __init__(self, spec: Sequence[tuple[str, Sequence[int] | None]], physical_shape: Sequence[int]) -> None:
        boxes = [box for _, box in spec]
        if boxes and boxes[0] is None:
            boxes[0] = [n // math.prod(b[i] for b in boxes[1:] if b) for i, n in enumerate(physical_shape)]
        given = [list(box or []) for box in boxes]
        if [math.prod(sizes) for sizes in zip(*given, strict=True)] != list(physical_shape):
            raise LayoutError(f"boxes {given} of {spec} do not multiply to the physical shape {list(physical_shape)}")
        # Physical axis i is cut into the i-th sizes of all boxes, the first box's outermost.
        numbers = np.arange(math.prod(physical_shape)).reshape([n for sizes in zip(*given, strict=True) for n in sizes])
        by_box = [i * len(given) + j for j in range(len(given)) for i in range(len(physical_shape))]
        self.logical_to_physical: list[int] = numbers.transpose(by_box).reshape(-1).tolist()
        self.mesh_shape = Shape([(name, math.prod(box)) for (name, _), box in zip(spec, given, strict=True)])

    @classmethod
    def spec_to_mesh_shape(cls, spec: Sequence[tuple[str, Sequence[int] | None]], num_processors: int) -> Shape:
        """The mesh's shape, given only the number of cores.

        Raises:
          LayoutError: the boxes need another number of cores.
        """
        sizes = [None if box is None else math.prod(box) for _, box in spec]
        known = math.prod(n for n in sizes if n is not None)
        filled = [num_processors // known if n is None else n for n in sizes]
        if math.prod(filled) != num_processors:
            raise LayoutError(f"{spec} has {math.prod(filled)} cores, and {num_processors} are there")
        return Shape([(name, n) for (name, _), n in zip(spec, filled, strict=True)])


def auto_logical_to_physical_tpu(
    logical_shape: Sequence[int], physical_shape: Sequence[int], return_coordinates: bool = False
) -> list[Any]:
    """The cores of a TPU in row-major order. `SimdMeshImpl` lays the mesh onto the torus itself.

    Raises:
      LayoutError: the shapes have other numbers of cores.
    """
    if math.prod(logical_shape) != math.prod(physical_shape):
        raise LayoutError(
            f"a mesh of shape {list(logical_shape)} has {math.prod(logical_shape)} cores, and physical shape "
            f"{list(physical_shape)} has {math.prod(physical_shape)}"
        )
    if return_coordinates:
        return list(np.ndindex(*physical_shape))
    return list(range(math.prod(physical_shape)))


def physical_shape_3d_from_topology_proto_4d(mesh_shape: Sequence[int]) -> list[int]:
    """Returns [y * z, x, cores] for a TPU's [x, y, z, cores].

    Raises:
      LayoutError: there are not four sizes.
    """
    if len(mesh_shape) != 4:
        raise LayoutError(f"a TPU's topology has four sizes, x, y, z and cores, and {list(mesh_shape)} was given")
    x, y, z, cores = mesh_shape
    return [y * z, x, cores]
