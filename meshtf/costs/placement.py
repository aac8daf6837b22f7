"""The places of a mesh's cores on a machine, and the links that a collective over some mesh axes uses there.

A group of a collective consists of the cores that differ along some mesh axes. On a torus, such groups extend along
whole axes of the torus if the mesh fits it (`Torus.place`). If not, cores are placed in order of their numbers. Groups
of cores on one chip share the chip's links. On levels of a network, cores are also placed in order, or in the given
processes.

For example, take the mesh data:4;model:2 on hosts of two cores each. The cores of a group over `model` are on one host,
and use only the inner level. The four cores of a group over `data` are on four hosts, and use only the level between
hosts.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np

from meshtf.costs.machine import Machine, NetworkLevel, TorusLinks
from meshtf.dimension import Shape
from meshtf.divisors import divisors
from meshtf.errors import DeviceError
from meshtf.layout import Axes
from meshtf.mesh_impl.tpu.topology import GENERATIONS
from meshtf.mesh_impl.tpu.torus import Torus
from meshtf.planning.core_positions import groups_over


@dataclasses.dataclass(frozen=True, slots=True)
class Extent:
    """The chips of a group along one axis of the torus. is_ring: whether the last one is linked to the first."""

    chips: int
    is_ring: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Footprint:
    """The links of one group of cores, while all groups of its kind communicate.

    Attributes:
      members: how many cores the group has.
      extents: on a torus, the axes along which the group extends, and how far.
      groups_per_chip: on a torus, how many groups share the links of a chip.
      levels: on a network, the levels and how many parts the group joins on each, innermost first.
    """

    members: int
    extents: tuple[Extent, ...] = ()
    groups_per_chip: int = 1
    levels: tuple[tuple[NetworkLevel, int], ...] = ()

    def __str__(self) -> str:
        """Returns text such as `16 ring x 8 line` for a torus, or `8 on level 0 x 4 on level 1` for a network."""
        if self.levels:
            return " x ".join(f"{parts} on level {n}" for n, (_, parts) in enumerate(self.levels) if parts > 1)
        along = " x ".join(f"{e.chips} {'ring' if e.is_ring else 'line'}" for e in self.extents)
        return along or "on one chip"


class Placement:
    """A mesh on a machine.

    Args:
      machine: the machine as seen by one core.
      mesh_shape: the shape of the mesh.
      process_of_core: the process of each core. Each process is then a part of the innermost level of a network.
    """

    def __init__(self, machine: Machine, mesh_shape: Shape, process_of_core: Sequence[int] = ()) -> None:
        self.machine, self.mesh_shape = machine, mesh_shape
        self._processes = np.asarray(process_of_core, np.int64)
        self._footprints: dict[Axes, Footprint] = {}
        self._groups: dict[Axes, np.ndarray] = {}
        if isinstance(machine.links, TorusLinks):
            self.torus, self._places = _on_torus(machine, machine.links, mesh_shape)

    def footprint(self, axes: Axes) -> Footprint:
        """Returns the links of the groups of cores that differ along these mesh axes."""
        if axes not in self._footprints:
            group = groups_over(axes, self.mesh_shape)[0]
            links = self.machine.links
            self._footprints[axes] = (
                self._on_chips(group, links) if isinstance(links, TorusLinks) else self._on_levels(group, links)
            )
        return self._footprints[axes]

    def hops(self, destinations: Sequence[int]) -> int:
        """Returns the most links, or levels, between a core and the core that its slice goes to. 0 if all keep
        their slices.
        """
        key = tuple(destinations)
        return self._hops(key)

    @functools.lru_cache(maxsize=64)  # noqa: B019 - a placement lives as long as a prediction
    def _hops(self, destinations: tuple[int, ...]) -> int:
        cores = np.arange(len(destinations))
        target = np.asarray(destinations)
        links = self.machine.links
        if isinstance(links, TorusLinks):
            chips, sizes = self._places[:, :-1], np.asarray(self.torus.chips)
            ways = np.abs(chips[cores] - chips[target])
            are_rings = [_is_ring(size, links) for size in self.torus.chips]
            return int(np.where(are_rings, np.minimum(ways, sizes - ways), ways).sum(axis=1).max())
        reached = [0 * cores, *(self._units(n)[cores] != self._units(n)[target] for n in range(len(self._levels) - 1))]
        return int((np.sum(reached, axis=0) + (cores != target)).max())

    @property
    def _levels(self) -> tuple[NetworkLevel, ...]:
        links = self.machine.links
        return () if isinstance(links, TorusLinks) else links

    def _on_chips(self, group: np.ndarray, links: TorusLinks) -> Footprint:
        places = self._places[group]
        on_a_chip = len(np.unique(places[:, -1]))
        extents = [
            Extent(count, is_ring=count == size and _is_ring(size, links))
            for size, own in zip(self.torus.chips, places[:, :-1].T, strict=True)
            for count in [len(np.unique(own))]
            if count > 1
        ]
        return Footprint(len(group), tuple(extents), self.torus.cores_per_chip // on_a_chip)

    def _on_levels(self, group: np.ndarray, levels: Sequence[NetworkLevel]) -> Footprint:
        counts = [len(group), *(len(np.unique(self._units(n)[group])) for n in range(len(levels) - 1)), 1]
        parts = [-(-inner // outer) for inner, outer in itertools.pairwise(counts)]
        return Footprint(len(group), levels=tuple(zip(levels, parts, strict=True)))

    def _units(self, level: int) -> np.ndarray:
        """Returns, for each core, the index of its part of the level."""
        if level == 0 and len(self._processes):
            return self._processes
        return np.arange(self.mesh_shape.size) // (self._levels[level].cores or self.mesh_shape.size)


def _is_ring(size: int, links: TorusLinks) -> bool:
    """Whether the last chip along an axis of the torus is linked to the first."""
    return size >= max(links.ring_from, 3)


def _on_torus(machine: Machine, links: TorusLinks, mesh_shape: Shape) -> tuple[Torus, np.ndarray]:
    """Returns a torus for the mesh and the place of each core. It prefers a known torus of this size that the
    mesh fits.
    """
    chips = -(-mesh_shape.size // links.cores_per_chip)
    known = GENERATIONS[machine.name].chips if machine.name in GENERATIONS else ()
    shapes = sorted((s for s in known if math.prod(s) == chips), key=max) or [_cube(chips, links.axes)]
    for shape in shapes:
        try:
            torus = Torus(shape, links.cores_per_chip)
            return torus, np.asarray(torus.place(mesh_shape))
        except DeviceError:
            continue
    torus = Torus(shapes[0], links.cores_per_chip)
    sizes = (*torus.chips, torus.cores_per_chip)
    return torus, np.stack(np.unravel_index(np.arange(mesh_shape.size), sizes), axis=1)


def _cube(chips: int, axes: int) -> tuple[int, ...]:
    """Returns the sizes of a torus of `chips` chips with `axes` axes, as nearly equal as possible, smallest first."""
    if axes == 1:
        return (chips,)
    side = max(n for n in divisors(chips) if n <= round(chips ** (1 / axes) + 1e-9))
    return tuple(sorted((side, *_cube(chips // side, axes - 1))))
