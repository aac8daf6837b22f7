"""A sequence cut in half again and again, so that "what is before what" becomes a few rectangles.

The later half sees all of the earlier half, and nothing of it is hidden: one rectangle. The same holds within each
half. After n cuts there are n levels of rectangles, with those of a level side by side, and 2^n blocks, each of which
sees a part of itself. Here are eight blocks. Rows see columns; a digit is a rectangle's level, d a block with itself:

    d . . . . . . .
    2 d . . . . . .
    1 1 d . . . . .
    1 1 2 d . . . .
    0 0 0 0 d . . .
    0 0 0 0 2 d . .
    0 0 0 0 1 1 d .
    0 0 0 0 1 1 2 d
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention._blocks import aligned
from meshtf.layers.attention.lean._blocked_memory import MEMORY_BLOCKS
from meshtf.layers.attention.tokens import LENGTH

BLOCKS, PAIRS, QUERY_BLOCKS = "blocks", "pairs", "query_blocks"


@dataclasses.dataclass(frozen=True)
class Halving:
    """2^`depth` blocks of `size` positions. The first `used` positions are the sequence's, and the rest is padding."""

    used: int
    depth: int
    size: int

    @classmethod
    def of_blocks(cls, length: int, size: int) -> Halving:
        """Blocks of about `size` positions or fewer, which divide as the length does; see `Blocks`."""
        depth = (-(-length // size) - 1).bit_length()
        return cls(length, depth, aligned(-(-length // (1 << depth)), length))

    @property
    def count(self) -> int:
        return 1 << self.depth

    @property
    def padding(self) -> int:
        return self.count * self.size - self.used

    def cut(self, x: mtf.Tensor, name: str) -> mtf.Tensor:
        """[.., name, ..] -> [.., blocks, name, ..]; a tensor without the dimension stays as it is."""
        if not x.shape.has(name):
            return x
        x = mtf.pad(x, [0, self.padding], name) if self.padding else x
        parts = [mtf.Dimension(BLOCKS, self.count), mtf.Dimension(name, self.size)]
        return x.unflatten(name, parts)

    def joined(self, x: mtf.Tensor) -> mtf.Tensor:
        """[.., blocks, length, ..] -> [.., length, ..]: the opposite of `cut`."""
        return x.flatten([BLOCKS, LENGTH], LENGTH)[LENGTH, : self.used]

    def positions(self, mesh: mtf.Mesh, name: str, dtype: tf.DType) -> mtf.Tensor:
        """The positions 0, 1, 2, .. as [blocks, name]. The padding counts on, so it is ahead of all others."""
        whole = mtf.Dimension(name, self.count * self.size)
        return dataclasses.replace(self, used=whole.size).cut(mtf.range(mesh, whole, dtype), name)

    def levels(self, window: int | None) -> list[Level]:
        """The levels, from the smallest rectangles to the largest, without those that a window does not reach."""
        halves = [self.count >> (number + 1) for number in reversed(range(self.depth))]
        # A token sees window - 1 tokens before it. Blocks farther away than that are left out.
        reach = self.count if window is None else -(-(window - 1) // self.size)
        return [Level(self.count, half, min(half, reach)) for half in halves if reach]


@dataclasses.dataclass(frozen=True)
class Level:
    """Rectangles side by side, each of a later half that sees and an earlier half that is seen.

    Attributes:
      count: the number of blocks of the sequence.
      half: the number of blocks in a half.
      reach: the number of blocks that see (the first of the later half) and are seen (the last of the earlier half).
    """

    count: int
    half: int
    reach: int

    @property
    def num_pairs(self) -> int:
        return self.count // (2 * self.half)

    def seeing(self, x: mtf.Tensor) -> mtf.Tensor:
        """[.., blocks, ..] -> [.., pairs, query_blocks, ..]: the queries that see; a tensor without blocks stays as it
        is.
        """
        return self._in_pairs(x, QUERY_BLOCKS)[QUERY_BLOCKS, self.half : self.half + self.reach] if _is_cut(x) else x

    def seen(self, x: mtf.Tensor) -> mtf.Tensor:
        """[.., blocks, ..] -> [.., pairs, memory_blocks, ..]: the memory that is seen; a tensor without blocks stays as
        it is.
        """
        return self._in_pairs(x, MEMORY_BLOCKS)[MEMORY_BLOCKS, self.half - self.reach : self.half] if _is_cut(x) else x

    def with_seeing(self, x: mtf.Tensor, new: mtf.Tensor) -> mtf.Tensor:
        """x, with new values in the place of `seeing(x)`."""
        whole = self._in_pairs(x, QUERY_BLOCKS)
        parts = [whole[QUERY_BLOCKS, : self.half], new]
        if self.reach < self.half:
            parts.append(whole[QUERY_BLOCKS, self.half + self.reach :])
        return mtf.concat(parts, QUERY_BLOCKS).reshape(x.shape)

    def begins_of_seeing(self, size: int) -> np.ndarray:
        """int32 [pairs, query_blocks]: the positions at which these blocks of `size` positions begin."""
        return (self._first_blocks() + self.half + np.arange(self.reach)) * size

    def begins_of_seen(self, size: int) -> np.ndarray:
        """int32 [pairs, query_blocks]: for each of these blocks, the position at which the first block that it sees
        begins.
        """
        return (self._first_blocks() + self.half - self.reach + np.zeros(self.reach, np.int64)) * size

    def _first_blocks(self) -> np.ndarray:
        return np.arange(0, self.count, 2 * self.half)[:, None]

    def _in_pairs(self, x: mtf.Tensor, name: str) -> mtf.Tensor:
        parts = [mtf.Dimension(PAIRS, self.num_pairs), mtf.Dimension(name, 2 * self.half)]
        return x.unflatten(BLOCKS, parts)


def _is_cut(x: mtf.Tensor) -> bool:
    return x.shape.has(BLOCKS)
