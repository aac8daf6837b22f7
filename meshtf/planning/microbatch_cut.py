"""Finds the examples of a micro-batch in its tensors, so that each example draws the same random bits as in the whole
batch.

For example, let two micro-batches cut batch:8 into its even and its odd examples. Example 2 is the second of its
micro-batch, and must draw the bits of position 2. After a reshape of [batch:4 beams:2] to [rows:8], each two adjacent
positions of `rows` belong to one example.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping

from meshtf.dimension import Dimension, Shape


@dataclasses.dataclass(frozen=True)
class MicrobatchCut:
    """How a loop cuts a batch: each iteration has every `count`-th example.

    Attributes:
      batch: the batch dimension in a micro-batch.
      count: the number of micro-batches.
      neighbours: the number of adjacent positions that belong to one example. The keys are the batch and each dimension
        into which a reshape has turned it, if examples follow one another there.
      names: names of other dimensions along which examples may differ: a position holds several examples, or a part of
        one.
    """

    batch: Dimension
    count: int
    neighbours: Mapping[Dimension, int]
    names: frozenset[str]

    @classmethod
    def of_batch(cls, batch: Dimension, count: int) -> MicrobatchCut:
        """The cut of a batch before any reshape: examples differ only along the batch dimension itself."""
        return cls(batch, count, {batch: 1}, frozenset([batch.name]))

    def dimension(self, shape: Shape) -> Dimension | None:
        """The dimension along which a tensor of the micro-batch is cut; None if it is the same for all examples."""
        if self.batch in shape:
            return self.batch
        exact, others = (d for d in shape if d in self.neighbours), (d for d in shape if d.name in self.names)
        return next(itertools.chain(exact, others), None)

    def neighbours_along(self, dim: Dimension) -> int:
        """The number of positions in a row that stay together along a dimension that is cut."""
        return self.neighbours.get(dim, 1)

    def after_reshape(self, old: Shape, new: Shape) -> MicrobatchCut:
        """The cut after a reshape, with the dimension added in which one example then follows another."""
        before = self.dimension(old)
        if before is None or before in new or not old.size:
            return self
        start = old.cumprod[old.axis(before)]
        end = start * before.size // self.neighbours_along(before)
        for first, dim in zip(new.cumprod, new, strict=True):
            # Looks for the dimension in which an example ends. If a micro-batch is one example, several dimensions may
            # match.
            if dim in old or first * dim.size < end or first > max(start, end - 1):
                continue
            several, rest = divmod(first * dim.size, end)
            if rest or dim.size % several or before not in self.neighbours:
                return dataclasses.replace(self, names=self.names | {dim.name})
            return dataclasses.replace(self, neighbours={dim: several, **self.neighbours})
        return self
