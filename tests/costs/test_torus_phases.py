"""The phases of a collective add up to its time, and to what each chip must be sent at least."""

from __future__ import annotations

import dataclasses

import pytest

import meshtf as mtf
from meshtf.costs.machine import TorusLinks
from meshtf.costs.placement import Extent, Placement
from meshtf.costs.seconds import collective_seconds
from meshtf.costs.torus_phases import phases_text, torus_phases

SIDE, BYTES = 32, 100_000_000


def test_an_allreduce_goes_along_one_axis_and_then_the_other() -> None:
    extents = (Extent(32, True), Extent(16, True))
    phases = torus_phases("all_reduce", extents)
    assert phases_text("all_reduce", extents) == "reduce_scatter along 32, all_reduce along 16, all_gather along 32"
    assert [phase.share for phase in phases] == [1.0, 1 / 32, 1.0]
    assert phases_text("reduce_scatter", extents) == "reduce_scatter along 32, reduce_scatter along 16"
    assert phases_text("all_gather", extents) == "all_gather along 16, all_gather along 32"
    assert phases_text("all_reduce", extents[:1]) == ""
    assert torus_phases("all_to_all", extents) == ()


@pytest.mark.parametrize("kind", ["all_reduce", "reduce_scatter", "all_gather"])
@pytest.mark.parametrize("sizes", [(4,), (32, 16), (4, 8, 2)])
def test_no_chip_is_sent_more_than_it_must_be(kind: str, sizes: tuple[int, ...]) -> None:
    """Each of n chips needs the parts of the others: (n - 1) / n of the tensor, twice for an allreduce."""
    chips = 1
    for size in sizes:
        chips *= size
    received = sum(phase.received for phase in torus_phases(kind, [Extent(size, True) for size in sizes]))
    assert received == pytest.approx((2 if kind == "all_reduce" else 1) * (chips - 1) / chips)


def test_two_halves_of_the_bytes_keep_all_links_busy() -> None:
    """On a square torus each phase of one half takes as long as that of the other, on the other axis. Their sum is
    the time that the cost model gives the whole."""
    machine = dataclasses.replace(
        mtf.costs.load_machine("v3"), collective_seconds=0.0, memory_bandwidth=1e15, link_efficiency=1.0
    )
    links = machine.links
    assert isinstance(links, TorusLinks)
    links = dataclasses.replace(links, hop_seconds=0.0)
    machine = dataclasses.replace(machine, links=links)
    mesh = mtf.convert_to_shape(f"rows:{2 * SIDE * SIDE}")
    placement = Placement(machine, mesh)
    extents = placement.footprint(("rows",)).extents
    assert [(extent.chips, extent.is_ring) for extent in extents] == [(SIDE, True)] * 2
    of_ring = 2 * links.bandwidth  # both directions
    by_phases = sum(BYTES / 2 * phase.received / of_ring for phase in torus_phases("all_reduce", extents))
    assert collective_seconds("all_reduce", BYTES, ("rows",), placement) == pytest.approx(by_phases, rel=1e-6)
