"""Boxes: what a slice covers of a whole tensor."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """For each dimension the first index and how many there are."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    @classmethod
    def whole(cls, shape: Sequence[int]) -> Box:
        return cls((0,) * len(shape), tuple(shape))

    @classmethod
    def of_slices(cls, slices: Sequence[slice]) -> Box:
        return cls(tuple(s.start for s in slices), tuple(s.stop - s.start for s in slices))

    @property
    def num_elements(self) -> int:
        return math.prod(self.size)

    @property
    def slices(self) -> tuple[slice, ...]:
        """What indexes the whole tensor."""
        return tuple(slice(start, start + size) for start, size in zip(self.start, self.size, strict=True))

    def relative_to(self, outer: Box) -> Box:
        """This box, counted from where `outer` starts."""
        return Box(tuple(a - b for a, b in zip(self.start, outer.start, strict=True)), self.size)

    def specification(self, shape: Sequence[int]) -> str:
        """As SaveV2 and RestoreV2 want it: `"4 8 2,2:0,4"`, or an empty text for the whole tensor."""
        if self == Box.whole(shape):
            return ""
        parts = ":".join(f"{start},{size}" for start, size in zip(self.start, self.size, strict=True))
        return f"{' '.join(map(str, shape))} {parts}"

    def subdivided(self, max_elements: int) -> Iterator[Box]:
        """Boxes of at most so many elements that make up this one, each contiguous in it."""
        if self.num_elements <= max_elements:
            yield self
            return
        axis = next(i for i, n in enumerate(self.size) if n > 1)
        rows = max(1, max_elements // math.prod(self.size[axis + 1 :]))
        for first in range(0, self.size[axis], rows):
            start, size = list(self.start), list(self.size)
            start[axis] += first
            size[axis] = min(rows, self.size[axis] - first)
            yield from Box(tuple(start), tuple(size)).subdivided(max_elements)
