"""Where a mesh is on a machine, and which links its groups have there."""

from __future__ import annotations

import pytest

import meshtf as mtf
from meshtf.costs import Placement, load_machine

pytestmark = pytest.mark.quick


@pytest.mark.parametrize(
    ("machine", "mesh_shape", "axes", "links"),
    [
        ("v3", "x:32 y:64", "x", "32 ring"),
        ("v3", "x:32 y:64", "y", "32 ring"),  # and the two cores of each chip
        ("v3", "x:16 y:32", "x y", "16 ring x 16 ring"),
        ("v3", "x:2 y:16", "x", "on one chip"),
        ("v5p", "x:8 y:64", "y", "8 ring x 8 ring"),
        ("v5e", "x:8 y:16", "x", "8 line"),
        ("v5e", "x:16 y:16", "x", "16 ring"),
        ("v4", "x:7 y:3", "x y", "3 line x 7 ring"),  # no slice of a pod has so many
        ("h100", "x:4 y:8", "y", "8 on level 0"),
        ("h100", "x:4 y:8", "x", "4 on level 1"),
        ("h100", "x:4 y:8", "x y", "8 on level 0 x 4 on level 1"),
    ],
)
def test_a_group_has_the_links_of_the_axes_along_which_it_extends(
    machine: str, mesh_shape: str, axes: str, links: str
) -> None:
    placement = Placement(load_machine(machine), mtf.convert_to_shape(mesh_shape))
    assert str(placement.footprint(tuple(axes.split()))) == links


def test_a_mesh_that_does_not_fit_a_torus_is_placed_all_the_same() -> None:
    placement = Placement(load_machine("v5p"), mtf.convert_to_shape("x:32 y:16"))
    assert placement.footprint(("x", "y")).members == 512
    assert placement.footprint(("y",)).extents


@pytest.mark.parametrize(("machine", "hops"), [("v5e", 7), ("v5p", 1)])
def test_the_last_chip_of_a_line_is_far_from_the_first(machine: str, hops: int) -> None:
    placement = Placement(load_machine(machine), mtf.convert_to_shape("x:8 y:8"))
    next_along_x = [(core + 8) % 64 for core in range(64)]
    assert placement.hops(next_along_x) == hops
