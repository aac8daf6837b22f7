"""Positions of cores against NumPy's row-major order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from meshtf.dimension import convert_to_shape
from meshtf.planning import core_positions

pytestmark = pytest.mark.quick

MESH = convert_to_shape("x:2;y:3;z:4")
SIZES = {"x": 2, "y": 3, "z": 4}
CORES = np.arange(24).reshape(2, 3, 4)
ORDERS = [axes for n in range(4) for axes in itertools.permutations(SIZES, n)]


def test_cores_are_numbered_row_major() -> None:
    for coordinates, core in np.ndenumerate(CORES):
        assert core_positions.coordinates(int(core), MESH) == dict(zip(SIZES, coordinates, strict=True))


@pytest.mark.parametrize("axes", ORDERS, ids="+".join)
def test_along_axes_in_any_order_the_first_one_is_major(axes: tuple[str, ...]) -> None:
    others = [a for a in SIZES if a not in axes]
    rows = CORES.transpose([list(SIZES).index(a) for a in (*axes, *others)]).reshape(
        int(np.prod([SIZES[a] for a in axes])), -1
    )
    for place, row in enumerate(rows):
        assert {core_positions.position(int(core), axes, MESH) for core in row} == {place}


def test_the_block_of_a_core() -> None:
    layout = (("z", "x"), (), ("y",))
    for (x, y, z), core in np.ndenumerate(CORES):
        assert core_positions.block(int(core), layout, MESH) == (2 * z + x, 0, y)


@pytest.mark.parametrize("axes", ORDERS[1:], ids="+".join)
def test_destinations_keep_to_the_axes_along_which_things_move(axes: tuple[str, ...]) -> None:
    count = int(np.prod([SIZES[a] for a in axes]))
    found = core_positions.destinations(axes, lambda j: (j + 5) % count, MESH)
    assert sorted(found) == list(range(24))
    others = tuple(a for a in SIZES if a not in axes)
    for core, destination in enumerate(found):
        place = core_positions.position(core, axes, MESH)
        assert core_positions.position(destination, axes, MESH) == (place + 5) % count
        assert core_positions.position(destination, others, MESH) == core_positions.position(core, others, MESH)
