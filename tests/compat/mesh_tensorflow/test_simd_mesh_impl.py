"""Tilings of a TPU say the mesh's shape, and each core once."""

from __future__ import annotations

import pytest

import meshtf.compat.mesh_tensorflow as mtf
from meshtf.errors import DeviceError, LayoutError

simd = mtf.simd_mesh_impl


def test_a_tiling_gives_neighbours_to_the_last_axis() -> None:
    """Of 4 x 2 chips with 2 cores, boxes of 2 x 1 chips: those of the first box are the chips (0, 0) and (1, 0)."""
    spec = [("dp", None), ("mp", [2, 1, 2])]
    tiling = simd.HierarchicalTiling(spec, [4, 2, 2])
    assert (
        tiling.mesh_shape == simd.HierarchicalTiling.spec_to_mesh_shape(spec, 16) == mtf.Shape([("dp", 4), ("mp", 4)])
    )
    chip = {number: (i, j) for i in range(4) for j in range(2) for number in (i * 4 + j * 2, i * 4 + j * 2 + 1)}
    assert [chip[n] for n in tiling.logical_to_physical[:4]] == [(0, 0), (0, 0), (1, 0), (1, 0)]
    assert sorted(tiling.logical_to_physical) == list(range(16))


def test_orders_of_cores() -> None:
    assert sorted(simd.auto_logical_to_physical_tpu([2, 4], [2, 2, 2])) == list(range(8))
    assert simd.auto_logical_to_physical_tpu([4], [2, 2], return_coordinates=True)[1] == (0, 1)
    assert simd.physical_shape_3d_from_topology_proto_4d([4, 8, 1, 2]) == [8, 4, 2]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(LayoutError, match="do not multiply to the physical shape"):
        simd.HierarchicalTiling([("dp", [2, 1]), ("mp", [1, 1])], [2, 2])
    with pytest.raises(LayoutError, match="has 4 cores, and 8 are there"):
        simd.HierarchicalTiling.spec_to_mesh_shape([("dp", [2, 2])], 8)
    with pytest.raises(LayoutError, match="has 4 cores, and physical shape"):
        simd.auto_logical_to_physical_tpu([4], [8])
    with pytest.raises(LayoutError, match="four sizes"):
        simd.physical_shape_3d_from_topology_proto_4d([4, 8])
    with pytest.raises(DeviceError, match="lays a mesh onto the TPU's torus"):
        simd.SimdMeshImpl("all:8", "hidden:all", logical_to_physical=[0, 0])
