"""The mesh of devices that a process has: CPUs, virtual or not, and GPUs."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.backends.spmd_mesh_impl import SpmdMeshImpl
from meshtf.call_sites import says_where
from meshtf.compat.mesh_tensorflow._layout import rules_of_mesh
from meshtf.compat.mesh_tensorflow._mesh_impls import WrappedMeshImpl
from meshtf.dimension import ShapeLike, shape_of
from meshtf.layout import LayoutLike
from meshtf.mesh_impl.virtual_cpus import virtual_cpus


class PlacementMeshImpl(WrappedMeshImpl):
    """A mesh on devices: a `meshtf.SpmdMeshImpl`.

    Args:
      shape: the mesh's named shape.
      layout: which dimension is split over which mesh axis. Rules for axes that the mesh lacks are left out.
      devices: the device of each core, row-major. If all are the same, as in `[""] * n`, the cores are the first n
        GPUs. With too few GPUs they are virtual CPUs, which are made here unless TensorFlow has started.

    Raises:
      DeviceError: a device does not exist, or TensorFlow has started with fewer devices than cores.
      LayoutError: the rules do not fit the mesh.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> mesh_impl = old.placement_mesh_impl.PlacementMeshImpl("rows:2;cols:2", "batch:rows", ["cpu:0"] * 4)
      >>> mesh_impl.size, mesh_impl.slice_shape("batch:8 hidden:4")
      (4, [4, 4])
    """

    @says_where
    def __init__(self, shape: ShapeLike, layout: LayoutLike, devices: Sequence[str] | None = None) -> None:
        named = shape_of(shape)
        chosen = None if devices is None or len(set(devices)) <= 1 else list(devices)
        if chosen is None and len(tf.config.list_physical_devices("GPU")) < named.size:
            virtual_cpus(max(named.size, 1))
        rules = rules_of_mesh(layout, named)
        super().__init__(SpmdMeshImpl(named, rules, chosen, shard_weight_update=False))
