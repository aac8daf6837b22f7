"""Boxes: what a slice covers of a whole tensor, and whether several make it up."""

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


MOST_CUTS = 64
"""Of a tensor into parts, of these into parts, and so on. Slices of a mesh, cut into chunks, need two for each axis."""


def are_a_tiling(boxes: Sequence[Box], shape: Sequence[int]) -> bool:
    """Whether boxes have every element of a tensor once, and come of it by cuts across one axis after the other, as
    slices and their chunks do. A tensor without elements is one box."""
    whole = Box.whole(shape)
    if not whole.num_elements:
        return list(boxes) == [whole]
    inside = all(_is_inside(box, shape) for box in boxes)
    return inside and sum(box.num_elements for box in boxes) == whole.num_elements and _are_apart(boxes, len(shape))


def _is_inside(box: Box, shape: Sequence[int]) -> bool:
    if not len(box.start) == len(box.size) == len(shape):
        return False
    return all(
        start >= 0 and size >= 1 and start + size <= n
        for start, size, n in zip(box.start, box.size, shape, strict=True)
    )


def _are_apart(boxes: Sequence[Box], num_axes: int) -> bool:
    groups = [list(boxes)]
    for _ in range(MOST_CUTS):
        groups = [part for group in groups for part in _cut(group, num_axes)]
        groups = [group for group in groups if len(group) > 1]
        if not groups:
            return True
    return False


def _cut(boxes: list[Box], num_axes: int) -> list[list[Box]]:
    """The boxes on each side of all cuts across the first axis that has any; all together where none has."""
    for axis in range(num_axes):
        parts: list[list[Box]] = []
        end = 0
        for box in sorted(boxes, key=lambda box: box.start[axis]):
            if not parts or box.start[axis] >= end:
                parts.append([])
            parts[-1].append(box)
            end = max(end, box.start[axis] + box.size[axis])
        if len(parts) > 1:
            return parts
    return [boxes]
