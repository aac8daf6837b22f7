"""Topologies of TPUs, by their Google Cloud names: `v5e:4x4`, `v5p:2x2x4`.

A name has a generation and the number of chips along each axis. For example, `v5p:2x2x4` has 16 chips on a torus with
three axes. Programs see one core on each v5p chip, so its meshes have 16 cores.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Mapping

from meshtf.dimension import Shape
from meshtf.errors import DeviceError, counted, nearest
from meshtf.mesh_impl.tpu.torus import Torus

_GIB = 2**30
_MOST_SUGGESTED = 6

_NO_TOPOLOGY = """\
"{text}" is not a TPU topology. A topology is a generation and its chips along each axis, as "{example}".
{there_are}"""

_NO_FIT = """\
mesh [{mesh}] has {cores} cores, and topology {topology} has {found} ({torus}).
{suggestion}"""


@dataclasses.dataclass(frozen=True)
class Generation:
    """One generation of TPUs.

    Attributes:
      name: its Google Cloud name.
      chips: for each of its topologies, smallest first, the number of chips along each axis.
      cores_per_chip: the cores of a chip that programs see. On v4 and v5p programs see a chip's two cores as one
        ("megacore").
      memory_bytes: the part of a core's high-bandwidth memory that a program can use.
      options: libtpu's options for its topologies.
    """

    name: str
    chips: tuple[tuple[int, ...], ...]
    cores_per_chip: int
    memory_bytes: int
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _flat(names: str) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(map(int, name.split("x"))) for name in names.split())


def _cubes(*pod: int) -> tuple[tuple[int, ...], ...]:
    """The topologies that are parts of a cube of 4x4x4 chips, or slices of a pod that consist of whole cubes."""
    slices = [c for c in itertools.product(*(range(4, most + 1, 4) for most in pod)) if list(c) == sorted(c)]
    return (*_flat("2x2x1 2x2x2 2x2x4 2x4x4"), *sorted(slices, key=lambda chips: (math.prod(chips), chips)))


GENERATIONS = {
    generation.name: generation
    for generation in (
        Generation("v2", _flat("2x2 4x4 4x8 8x8 8x16 16x16"), 2, int(7.48 * _GIB)),
        Generation("v3", _flat("2x2 4x4 4x8 8x8 8x16 16x16 16x32 32x32"), 2, int(15.48 * _GIB)),
        Generation("v4", _cubes(16, 16, 16), 1, int(30.75 * _GIB), {"chip_config_name": "megacore"}),
        Generation("v5e", _flat("1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"), 1, int(15.75 * _GIB)),
        Generation("v5p", _cubes(16, 20, 28), 1, int(95.74 * _GIB)),
        Generation("v6e", _flat("1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16"), 1, int(31.25 * _GIB)),
        Generation("tpu7x", _cubes(16, 24, 24), 2, int(94.75 * _GIB)),
    )
}
"""The generations by name. Their memory is the limit that libtpu reports when a program needs more."""


@dataclasses.dataclass(frozen=True)
class TpuTopology:
    """A slice of a TPU pod. `str` gives its name.

    Attributes:
      generation: the generation of its chips.
      chips: the number of chips along each axis.
    """

    generation: Generation
    chips: tuple[int, ...]

    @classmethod
    def of(cls, topology: str | TpuTopology) -> TpuTopology:
        """The topology of a name such as "v5e:4x4". If there is none, raises DeviceError, which lists all."""
        if isinstance(topology, TpuTopology):
            return topology
        name, _, chips = str(topology).partition(":")
        if name not in GENERATIONS:
            there_are = f"Generations: {', '.join(GENERATIONS)}{nearest(name, GENERATIONS)}"
            raise DeviceError(_NO_TOPOLOGY.format(text=topology, example="v5e:4x4", there_are=there_are))
        generation = GENERATIONS[name]
        sizes = tuple(int(n) for n in chips.split("x")) if re.fullmatch(r"\d+(x\d+)*", chips) else ()
        if sizes not in generation.chips:
            known: list[TpuTopology] = [cls(generation, c) for c in generation.chips]
            there_are = _listed(known, math.prod(sizes))
            raise DeviceError(_NO_TOPOLOGY.format(text=topology, example=known[2], there_are=there_are))
        return cls(generation, sizes)

    @property
    def cores(self) -> int:
        """The number of cores that programs see."""
        return math.prod(self.chips) * self.generation.cores_per_chip

    @property
    def torus(self) -> Torus:
        return Torus(self.chips, self.generation.cores_per_chip)

    @property
    def libtpu_options(self) -> dict[str, str | list[int]]:
        """The options that libtpu needs for this topology, besides its name."""
        one_chip = {"chips_per_host_bounds": [1, 1, 1]} if math.prod(self.chips) == 1 else {}
        return {**self.generation.options, **one_chip}

    def places(self, mesh_shape: Shape) -> tuple[tuple[int, ...], ...]:
        """The place of each core of a mesh: its chip's coordinates along three axes, then its number on the chip.

        Raises DeviceError if the mesh does not fit. The message lists topologies or meshes that do.
        """
        if mesh_shape.size != self.cores:
            raise DeviceError(self._no_fit(mesh_shape))
        return tuple((*p[:-1], *[0] * (4 - len(p)), p[-1]) for p in self.torus.place(mesh_shape))

    def _no_fit(self, mesh_shape: Shape) -> str:
        every = [TpuTopology(g, chips) for g in GENERATIONS.values() for chips in g.chips]
        of_size = [t for t in every if t.cores == mesh_shape.size]
        own = [t for t in of_size if t.generation == self.generation]
        names = ", ".join(map(str, own or of_size))
        return _NO_FIT.format(
            mesh=mesh_shape,
            cores=mesh_shape.size,
            topology=self,
            found=f"{self.cores:,}",
            torus=self.torus,
            suggestion=f"Give {names}, or a mesh of {counted(self.cores, 'core')}."
            if names
            else f"No topology has {counted(mesh_shape.size, 'core')}: give a mesh of {self.cores}.",
        )

    def __str__(self) -> str:
        return f"{self.generation.name}:{'x'.join(map(str, self.chips))}"


def _listed(known: list[TpuTopology], chips: int) -> str:
    """The topologies of a generation, as text: all, or those with about as many chips."""
    if len(known) > 2 * _MOST_SUGGESTED:
        nearby = sorted(known, key=lambda t: abs(math.log2(math.prod(t.chips) / max(chips, 1))))[: 2 * _MOST_SUGGESTED]
        smallest_first = sorted(nearby, key=lambda t: (math.prod(t.chips), t.chips))
        return (
            f"Of {known[0].generation.name} there are {len(known)}, among them {', '.join(map(str, smallest_first))}."
        )
    return f"Of {known[0].generation.name} there are {', '.join(map(str, known))}."
