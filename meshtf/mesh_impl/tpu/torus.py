"""Maps the axes of a mesh onto the torus of chips of a TPU.

A mesh axis consists of whole axes of the torus. Its positions run along them back and forth, as an ox ploughs (a
reflected Gray code). So each step follows one link, or leads from one core of a chip to the other.

For example, a mesh axis of 8 is mapped to a torus of 2x4 chips, with one core each, in this order:

    (0,0) (0,1) (0,2) (0,3)
    (1,3) (1,2) (1,1) (1,0)

Only one kind of torus axis can be divided between two mesh axes: a ring of four, which is a square.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from meshtf.dimension import Shape
from meshtf.errors import DeviceError, counted

_MOST_SUGGESTED = 6
_SQUARE = {(0, 0): 0, (0, 1): 1, (1, 1): 2, (1, 0): 3}  # a ring of four as a square

_UNFIT = """\
mesh [{mesh}] does not fit a torus of {torus}: {fact}.
Neighbours of the mesh are neighbours on it for: {fitting}."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Part:
    """A part of the torus for one mesh axis: an axis of the torus (the last is a chip's cores), or half a square."""

    axis: int
    size: int
    half: int | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Torus:
    """The number of chips along each of two or three axes, which are rings, and of cores on each chip."""

    chips: tuple[int, ...]
    cores_per_chip: int = 2

    def __post_init__(self) -> None:
        if len(self.chips) not in (2, 3) or any(n < 1 for n in self.chips):
            raise DeviceError(f'a torus has chips along two or three axes, as "4x4" or "4x4x8", and not {self.chips!r}')
        if self.cores_per_chip not in (1, 2):
            raise DeviceError(f"a chip has one core or two, not {self.cores_per_chip!r}")

    @classmethod
    def of(cls, chips: str | Sequence[int] | Torus, cores_per_chip: int = 2) -> Torus:
        """Converts "4x4x8", [4, 4, 8] or a torus to a torus. Raises DeviceError for anything else."""
        if isinstance(chips, Torus):
            return chips
        parts = chips.split("x") if isinstance(chips, str) else list(chips)
        if not all(str(n).isdecimal() for n in parts):
            raise DeviceError(f'the physical torus is written as "4x4" or "4x4x8", in chips, and not {chips!r}')
        return cls(tuple(int(n) for n in parts), cores_per_chip)

    @property
    def size(self) -> int:
        """Number of cores."""
        return math.prod(self.chips) * self.cores_per_chip

    def place(self, mesh_shape: Shape) -> tuple[tuple[int, ...], ...]:
        """The place of each core of a mesh, by core number: its chip's coordinates, then its number on the chip.

        Consecutive cores along a mesh axis are on one chip, or on chips with a link between them. So are the last and
        the first, unless the mesh axis consists of several torus axes of odd size.

        Raises:
          DeviceError: the mesh does not fit. The message lists some meshes that do.
        """
        wanted = tuple(axis.size for axis in mesh_shape)
        for shares in self._ways(len(wanted)):
            if tuple(math.prod(p.size for p in share) for share in shares) == wanted:
                return tuple(
                    self._position(coordinates, shares) for coordinates in itertools.product(*map(range, wanted))
                )
        raise DeviceError(self._unfit(mesh_shape))

    def hops(self, one: Sequence[int], other: Sequence[int]) -> int:
        """The number of links on the shortest path between the chips of two cores."""
        ways = [abs(a - b) for a, b in zip(one, other, strict=True)][: len(self.chips)]
        return sum(min(way, size - way) for way, size in zip(ways, self.chips, strict=True))

    def __str__(self) -> str:
        cores = "2 cores" if self.cores_per_chip == 2 else "1 core"
        return f"{'x'.join(map(str, self.chips))} chips with {cores} each"

    def _ways(self, mesh_axes: int) -> Iterator[list[list[_Part]]]:
        """All ways to divide the torus among mesh axes. If possible, the last mesh axis has the cores of a chip."""
        sizes = [*self.chips, self.cores_per_chip]
        wholes = [_Part(axis, size) for axis, size in reversed(list(enumerate(sizes))) if size > 1]
        # A ring of four is one part, or a square with two parts of two. Ways with fewer parts come first.
        choices = [[[p], [_Part(p.axis, 2, 1), _Part(p.axis, 2, 0)]] if p.size == 4 else [[p]] for p in wholes]
        for chosen in sorted(itertools.product(*choices), key=lambda parts: sum(map(len, parts))):
            parts = [p for part in chosen for p in part]
            for owners in itertools.product(reversed(range(mesh_axes)), repeat=len(parts)):
                shares: list[list[_Part]] = [[] for _ in range(mesh_axes)]
                for part, owner in zip(parts, owners, strict=True):
                    shares[owner].append(part)
                # The outermost part closes the ring: with two positions always, with an even number through the torus's
                # own ring.
                yield [sorted(share, key=lambda p: (p.size != 2, p.size % 2)) for share in shares]

    def _position(self, coordinates: Sequence[int], shares: Sequence[Sequence[_Part]]) -> tuple[int, ...]:
        position = [0] * (len(self.chips) + 1)
        halves: dict[int, list[int]] = {}
        for coordinate, share in zip(coordinates, shares, strict=True):
            for part, place in zip(share, _ploughed(coordinate, [p.size for p in share]), strict=True):
                if part.half is None:
                    position[part.axis] = place
                else:
                    halves.setdefault(part.axis, [0, 0])[part.half] = place
        for axis, (first, second) in halves.items():
            position[axis] = _SQUARE[first, second]
        return tuple(position)

    def _unfit(self, mesh_shape: Shape) -> str:
        fact = f"it has {counted(self.size, 'core')}, the mesh {mesh_shape.size}"
        if mesh_shape.size == self.size:
            fact = "its axes cannot be made of whole axes of the torus"
        sizes = tuple(axis.size for axis in mesh_shape)
        fitting = {tuple(math.prod(p.size for p in share) for share in shares) for shares in self._ways(len(sizes))}
        near = sorted(fitting, key=lambda found: (_distance(found, sizes), found))[:_MOST_SUGGESTED]
        named = [";".join(f"{d.name}:{n}" for d, n in zip(mesh_shape, found, strict=True)) for found in near]
        return _UNFIT.format(mesh=mesh_shape, torus=self, fact=fact, fitting=", ".join(f"[{n}]" for n in named))


def _ploughed(coordinate: int, sizes: Sequence[int]) -> list[int]:
    """The digits of a number in a reflected Gray code, outermost first: a step of one changes one digit by one.

    A digit is reversed if the number that the digits outside it make is odd.
    """
    digits, outside = [], 0
    for n in range(len(sizes)):
        inner = math.prod(sizes[n + 1 :])
        digit, coordinate = divmod(coordinate, inner)
        turned = sizes[n] - 1 - digit if outside % 2 else digit
        outside = outside * sizes[n] + digit
        digits.append(turned)
    return digits


def _distance(found: Sequence[int], wanted: Sequence[int]) -> float:
    return sum(abs(math.log2(a / b)) for a, b in zip(found, wanted, strict=True) if b)
