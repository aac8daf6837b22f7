"""Boxes: the part of a whole tensor that a slice covers, and whether several boxes make up the tensor.

On a mesh of four cores, [batch:8 hidden:4] with `batch` over all of them has four boxes: (start 0,0 size 2,4), (start
2,0 size 2,4), and so on.

Cuts show whether boxes make up a tensor. First, all boxes must lie inside, and together have as many elements as the
tensor. Then a cut that crosses no box divides the boxes along one axis, and each part is cut again. If in the end every
box is alone, no two boxes overlap.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence


@dataclasses.dataclass(frozen=True, slots=True)
class Box:
    """The first index and the size of a part of a tensor, in each dimension."""

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
        """The index of this part in the whole tensor."""
        return tuple(slice(start, start + size) for start, size in zip(self.start, self.size, strict=True))

    def relative_to(self, outer: Box) -> Box:
        """Returns this box with starts relative to `outer`."""
        return Box(tuple(a - b for a, b in zip(self.start, outer.start, strict=True)), self.size)

    def specification(self, shape: Sequence[int]) -> str:
        """Returns the box as text for SaveV2 and RestoreV2: `"4 8 2,2:0,4"`, or an empty text for the whole tensor."""
        if self == Box.whole(shape):
            return ""
        parts = ":".join(f"{start},{size}" for start, size in zip(self.start, self.size, strict=True))
        return f"{' '.join(map(str, shape))} {parts}"

    def subdivided(self, max_elements: int) -> Iterator[Box]:
        """Yields boxes of at most `max_elements` elements that make up this one, each contiguous in it."""
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
"""The largest number of rounds, each of which cuts all parts again. Slices in chunks need two rounds for each axis."""


def are_a_tiling(boxes: Sequence[Box], shape: Sequence[int]) -> bool:
    """Tells whether boxes cover every element of a tensor exactly once, and can be cut apart axis by axis.

    Slices and their chunks can be cut apart. A tensor without elements must be one box.
    """
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
    """Returns the groups of boxes between all cuts along the first axis that can be cut, or all boxes as one group."""
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
