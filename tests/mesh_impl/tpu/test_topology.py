"""Topologies by name: those that are, and meshes on them."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.errors import DeviceError
from meshtf.mesh_impl.tpu.topology import GENERATIONS, TpuTopology

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("name", "cores"),
    [("v2:2x2", 8), ("v3:32x32", 2048), ("v4:2x2x1", 4), ("v5e:1x1", 1), ("v5p:8x16x16", 2048), ("tpu7x:4x4x4", 128)],
)
def test_names_and_cores(name: str, cores: int) -> None:
    topology = TpuTopology.of(name)
    assert (str(topology), topology.cores) == (name, cores)
    assert TpuTopology.of(topology) is topology


def test_every_topology_has_its_name() -> None:
    for generation in GENERATIONS.values():
        for chips in generation.chips:
            topology = TpuTopology(generation, chips)
            assert TpuTopology.of(str(topology)) == topology


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("v5e:3x3", "Of v5e there are v5e:1x1, v5e:2x2, v5e:2x4, v5e:4x4"),
        ("v4:2x2", "Of v4 there are 24, among them v4:2x2x1, v4:2x2x2"),
        ("v5:4x4", 'Generations: v2, v3, v4, v5e, v5p, v6e, tpu7x; did you mean "v5'),
        ("v5e", "Of v5e there are"),
        ("v5p:8x4x4", "among them v5p:"),
    ],
)
def test_what_is_no_topology(name: str, said: str) -> None:
    with pytest.raises(DeviceError, match=f'"{name}" is not a TPU topology. A topology is a generation') as raised:
        TpuTopology.of(name)
    assert said in str(raised.value)


def test_places_of_two_cores_on_a_chip_and_of_one() -> None:
    mesh = mtf.convert_to_shape("rows:2;cols:4")
    for name, numbers_on_chip in (("v3:2x2", {0, 1}), ("v4:2x2x2", {0})):
        places = TpuTopology.of(name).places(mesh)
        assert len(set(places)) == 8
        assert {place[-1] for place in places} == numbers_on_chip


@pytest.mark.parametrize(
    ("topology", "mesh", "said"),
    [
        ("v5e:4x4", "all:8", "Give v5e:2x4, or a mesh of 16 cores"),
        ("v5e:4x4", "all:512", "Give v2:16x16, v3:16x16, v4:4x8x16"),
        ("v5e:4x4", "all:7", "No topology has 7 cores: give a mesh of 16"),
    ],
)
def test_a_mesh_of_another_size(topology: str, mesh: str, said: str) -> None:
    with pytest.raises(DeviceError, match=said):
        TpuTopology.of(topology).places(mtf.convert_to_shape(mesh))
