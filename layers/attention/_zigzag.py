"""A sequence in blocks round a ring, arranged so that causal attention has the same work at every place.

With 4 places in the order of the sequence, the first block would see only itself, and the last one all four. Here 8
parts of the sequence lie in a zigzag, two at each place. Striped attention (Brandon et al. 2023) balances the same work
with other parts.

    place        0       1       2       3
    parts        0, 7    2, 5    4, 3    6, 1
    sees         1 + 8   3 + 6   5 + 4   7 + 2    parts: 9 everywhere
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import meshtf as mtf
from meshtf.layers.attention.tokens import LENGTH, as_sequence

HALVES, LENGTH_IN_BLOCK, MEMORY_IN_BLOCK = "halves", "length_in_block", "memory_in_block"

Half: TypeAlias = "int | mtf.Tensor"
"""A half of the blocks: its number, or bool [length], which is true at places where it is the first."""


@dataclasses.dataclass(frozen=True)
class Ring:
    """A sequence in `num_blocks` blocks, which take the name `length`. Split over the mesh, each core has some of them.

    With two halves, a block is an early part of the sequence and the late part that mirrors it. With 2n parts, place r
    has the parts 2r and 2n - 1 - 2r. For causal attention every place then has the same work at every step.

    Attributes:
      used: the sequence's positions, without padding.
      num_blocks: the number of places of the ring.
      halves: 2 if causal work is balanced, else 1.
    """

    used: int
    num_blocks: int
    halves: int

    @property
    def size(self) -> int:
        """The number of positions in a half of a block."""
        return -(-self.used // (self.num_blocks * self.halves))

    @property
    def padding(self) -> int:
        return self.num_blocks * self.halves * self.size - self.used

    @property
    def places(self) -> mtf.Dimension:
        return mtf.Dimension(LENGTH, self.num_blocks)

    def cut(self, x: mtf.Tensor, inside: str) -> mtf.Tensor:
        """[.., length, ..] -> [.., length, halves, inside, ..]; a tensor without `length` stays as it is."""
        x = as_sequence(x)
        if not x.shape.has(LENGTH):
            return x
        x = mtf.pad(x, [0, self.padding], LENGTH) if self.padding else x
        parts = [self.places, mtf.Dimension(HALVES, self.halves), mtf.Dimension(inside, self.size)]
        x = x.unflatten(LENGTH, parts)
        if self.halves == 1:
            return x
        # Cutting puts parts 2r and 2r + 1 at place r. Reversing the odd ones brings part 2n - 1 - 2r there.
        even, odd = mtf.unstack(x, HALVES)
        return self._stacked(*self._swapped(even, mtf.reverse(odd, LENGTH)), x.shape)

    def joined(self, y: mtf.Tensor) -> mtf.Tensor:
        """The opposite of `cut`."""
        if self.halves == 2:
            even, odd = self._swapped(*mtf.unstack(y, HALVES))
            y = self._stacked(even, mtf.reverse(odd, LENGTH), y.shape)
        parts = [y.shape[name] for name in (LENGTH, HALVES, LENGTH_IN_BLOCK)]
        y = y.transpose([*(d for d in y.shape if d not in parts), *parts])
        return y.flatten(parts, LENGTH)[LENGTH, : self.used]

    def is_earlier(self, mesh: mtf.Mesh, step: mtf.Tensor | int) -> mtf.Tensor:
        """bool [length]: whether the block that came from `step` places before has an earlier first half than the
        place's own.
        """
        return self._first_part(self._place(mesh, step)) < self._first_part(self._place(mesh, 0))

    def begins(self, mesh: mtf.Mesh, step: mtf.Tensor | int, half: Half) -> mtf.Tensor:
        """int32 [length]: the position in the sequence at which a half begins, of the block that came from `step`
        places before.
        """
        place = self._place(mesh, step)
        if self.halves == 1:
            return place * self.size
        first = self._first_part(place)
        return picked([first, 2 * self.num_blocks - 1 - first], half) * self.size

    def _place(self, mesh: mtf.Mesh, step: mtf.Tensor | int) -> mtf.Tensor:
        """int32 [length]: the place that is `step` places before."""
        here = mtf.range(mesh, self.places)
        if isinstance(step, int) and step == 0:
            return here
        there = here - step
        return mtf.where(there < 0, there + self.num_blocks, there)

    def _first_part(self, place: mtf.Tensor) -> mtf.Tensor:
        return mtf.minimum(2 * place, 2 * self.num_blocks - 1 - 2 * place)

    def _swapped(self, a: mtf.Tensor, b: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        """The two, exchanged at the places where the even part is the later one."""
        place = mtf.range(a.mesh, self.places)
        # 2r < 2n - 1 - 2r is the same as 4r < 2n - 1.
        is_even_first = 4 * place < 2 * self.num_blocks - 1
        return picked([a, b], is_even_first), picked([b, a], is_even_first)

    def _stacked(self, first: mtf.Tensor, second: mtf.Tensor, shape: mtf.Shape) -> mtf.Tensor:
        return mtf.stack([first, second], HALVES, shape.axis(HALVES))


def halves_of(x: mtf.Tensor, count: int) -> list[mtf.Tensor]:
    """The two halves; a tensor without halves is the same for both."""
    return mtf.unstack(x, HALVES) if x.shape.has(HALVES) else [x] * count


def picked(halves: list[mtf.Tensor], half: Half) -> mtf.Tensor:
    """One half, or at each place the half that is wanted there."""
    if isinstance(half, int):
        return halves[half]
    first, second = halves[0], halves[-1]
    return first if first is second else mtf.where(half, first, second, output_shape=first.shape)


def replaced(halves: list[mtf.Tensor], half: Half, new: mtf.Tensor) -> list[mtf.Tensor]:
    """The halves with one of them replaced: the opposite of `picked`."""
    if isinstance(half, int):
        return [new if number == half else x for number, x in enumerate(halves)]
    first, second = halves
    return [
        mtf.where(half, new, first, output_shape=new.shape),
        mtf.where(half, second, new, output_shape=new.shape),
    ]
