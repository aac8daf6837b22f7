"""Meshes on tori: every core used once, neighbours on one chip or on linked ones, and what does not fit."""

from __future__ import annotations

import itertools

import pytest

import meshtf as mtf
from meshtf.errors import DeviceError
from meshtf.mesh_impl.tpu.torus import Torus

FITTING = [
    ("all:8", "2x2", 2),
    ("rows:2;cols:4", "2x2", 2),
    ("x:2;y:2;z:2", "2x2", 2),
    ("rows:4;cols:8", "4x4", 2),
    ("rows:32", "4x4", 2),
    ("rows:8;cols:8", "4x4x4", 1),
    ("rows:16;cols:8", "4x4x4", 2),
    ("data:64;model:32", "8x8x16", 2),
    ("rows:24;one:1", "4x3x2", 1),
    ("rows:3;cols:5", "3x5", 1),
    ("rows:6;cols:4", "3x4", 2),
]


def rows_of_neighbours(mesh_shape: mtf.Shape) -> list[list[int]]:
    """Core numbers along each mesh axis, for all coordinates along the others."""
    found = []
    sizes = mesh_shape.to_integer_list
    for axis, size in enumerate(sizes):
        others = [range(n) if i != axis else range(1) for i, n in enumerate(sizes)]
        for place in itertools.product(*others):
            numbers = []
            for position in range(size):
                number = 0
                for i, n in enumerate(sizes):
                    number = number * n + (position if i == axis else place[i])
                numbers.append(number)
            found.append(numbers)
    return found


@pytest.mark.parametrize(("mesh", "chips", "cores_per_chip"), FITTING)
def test_neighbours_stay_neighbours(mesh: str, chips: str, cores_per_chip: int) -> None:
    torus, shape = Torus.of(chips, cores_per_chip), mtf.convert_to_shape(mesh)
    positions = torus.place(shape)
    everywhere = itertools.product(*map(range, [*torus.chips, cores_per_chip]))
    assert sorted(positions) == sorted(everywhere)
    for row in rows_of_neighbours(shape):
        steps = [torus.hops(positions[a], positions[b]) for a, b in itertools.pairwise(row)]
        assert max(steps, default=0) <= 1, (row, steps)


@pytest.mark.parametrize(("mesh", "chips", "cores_per_chip"), FITTING)
def test_each_axis_is_a_ring(mesh: str, chips: str, cores_per_chip: int) -> None:
    torus, shape = Torus.of(chips, cores_per_chip), mtf.convert_to_shape(mesh)
    positions = torus.place(shape)
    for row in rows_of_neighbours(shape):
        assert torus.hops(positions[row[-1]], positions[row[0]]) <= 1, row


def test_cores_of_a_chip_go_to_the_last_axis() -> None:
    positions = Torus.of("4x4", 2).place(mtf.convert_to_shape("rows:4;cols:8"))
    assert {p[:2] for p in positions[:8]} == {(0, y) for y in range(4)}


def test_a_mesh_that_does_not_fit() -> None:
    with pytest.raises(DeviceError) as error:
        Torus.of("16x2", 2).place(mtf.convert_to_shape("rows:8;cols:8"))
    assert str(error.value) == (
        "mesh [rows:8 cols:8] does not fit a torus of 16x2 chips with 2 cores each: its axes cannot be made of whole "
        "axes of the torus.\nNeighbours of the mesh are neighbours on it for: [rows:4;cols:16], [rows:16;cols:4], "
        "[rows:2;cols:32], [rows:32;cols:2], [rows:1;cols:64], [rows:64;cols:1]."
    )
    with pytest.raises(DeviceError, match="it has 8 cores, the mesh 12"):
        mtf.TpuMeshImpl("rows:3;cols:4", "", physical_torus="2x2")


@pytest.mark.parametrize(
    ("chips", "cores_per_chip", "fact"),
    [
        ("2by2", 2, 'is written as "4x4" or "4x4x8", in chips, and not \'2by2\''),
        ("4", 2, "has chips along two or three axes"),
        ([4, 0], 2, "has chips along two or three axes"),
        ("4x4", 3, "a chip has one core or two, not 3"),
    ],
)
def test_what_is_no_torus(chips: str, cores_per_chip: int, fact: str) -> None:
    with pytest.raises(DeviceError, match=fact):
        Torus.of(chips, cores_per_chip)
