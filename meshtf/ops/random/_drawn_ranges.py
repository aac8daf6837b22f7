"""The part of each dimension of a random tensor that a core draws, even inside loops that cut it into micro-batches.

Bits depend on positions in the whole tensor. In a micro-batch, these are not consecutive: micro-batch 1 of 3 has the
examples 1, 4, 7 and so on. So a dimension of 9 is drawn as a matrix [3, 3] of [position in the micro-batch, number of
the micro-batch], from which this micro-batch takes column 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Dimension, Shape
from meshtf.layer_scopes import Vectorization
from meshtf.layout import Axes
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner

Draw = Callable[..., tf.Tensor]
"""A function `draw(key, begin, slice_shape, whole_shape)`."""

Cuts: TypeAlias = tuple[tuple[int, Value], ...]
"""The cuts of a dimension into parts, the last cut first: the number of parts, and the number of this part."""


@dataclasses.dataclass(frozen=True)
class DrawnRange:
    """The range of one dimension that a core draws.

    whole: the dimension's size.
    size: the size of the core's part.
    axes: the mesh axes that split it.
    cuts: the cuts into micro-batches. With n parts, a micro-batch has every n-th element.
    neighbours: the number of consecutive elements that a cut keeps together and counts as one.
    origin: the position where the range of all cores begins, known when the program runs; by default 0.
    """

    whole: int
    size: int
    axes: Axes
    cuts: Cuts = ()
    neighbours: int = 1
    origin: Value | None = None

    @property
    def is_product(self) -> bool:
        """Whether a core's part is a product of ranges: it consists of whole neighbourhoods, or lies within one."""
        return not (self.size % self.neighbours and self.neighbours % self.size)

    @property
    def whole_factors(self) -> list[int]:
        """The sizes of the factors in which the dimension is drawn.

        A dimension that is cut becomes several: neighbourhoods, one for each cut, neighbours.
        """
        counts = [count for count, _ in self.cuts]
        return [self.whole, *counts] if self.neighbours == 1 else [self._outer, *counts, self.neighbours]

    @property
    def part_factors(self) -> list[int]:
        """The size drawn of each factor. If a core's part is no product of ranges, all of the micro-batch is drawn."""
        size, ones = (self.size if self.is_product else self.whole), [1 for _ in self.cuts]
        inner = min(size, self.neighbours)
        return [size, *ones] if self.neighbours == 1 else [size // inner, *ones, inner]

    def begin(self, core: Core, given: dict[Value, tf.Tensor]) -> list[tf.Tensor | int]:
        """The position at which the drawing begins, for each factor."""
        first, numbers = (self.first(core) if self.is_product else 0), [given[number] for _, number in self.cuts]
        first = first if self.origin is None else given[self.origin] + first
        if self.neighbours == 1:
            return [first, *numbers]
        neighbourhood = first // self.neighbours
        return [neighbourhood, *numbers, first - neighbourhood * self.neighbours]

    def first(self, core: Core) -> tf.Tensor | int:
        return core.coordinate(self.axes) * self.size if self.axes else 0

    @property
    def _outer(self) -> int:
        return self.whole // self.neighbours


def cuts_of(
    dim: Dimension, shape: Shape, vectorization: Vectorization | None, microbatches: Sequence[Value], planner: Planner
) -> tuple[Cuts, int]:
    """The cuts of a random tensor's dimension into micro-batches, and the number of positions that stay together.

    microbatches: the micro-batch of each layer, for layers that are computed at once.
    """
    cuts, neighbours = [], []
    own = vectorization.cut if vectorization else None
    if own is not None and dim.name in own.names:
        cuts += [(own.count, number) for number in microbatches]
        neighbours.append(own.neighbours(dim))
    for cut, number in planner.loops.microbatches:
        if _is_cut(dim, shape, vectorization, cut):
            cuts.append((cut.count, number))
            neighbours.append(cut.neighbours_along(dim))
    return tuple(cuts), neighbours[0] if neighbours else 1


def _is_cut(dim: Dimension, shape: Shape, vectorization: Vectorization | None, cut: MicrobatchCut) -> bool:
    """Whether a loop's cut of the batch cuts this dimension.

    A dimension that vectorized layers cut once more is also cut by the loop.
    """
    own = vectorization.cut if vectorization else None
    if own is not None and own.names[0] == cut.batch.name and any(d.name in own.names for d in shape):
        return dim.name in own.names
    return dim == cut.dimension(shape)


def drawn_part(
    draw: Draw, key: random.Key, ranges: Sequence[DrawnRange], core: Core, given: dict[Value, tf.Tensor]
) -> tf.Tensor:
    """The core's part, drawn with the numbers that are known when the program runs."""
    whole = [n for s in ranges for n in s.whole_factors]
    part = [n for s in ranges for n in s.part_factors]
    size = [s.size for s in ranges]
    y = draw(key, [place for s in ranges for place in s.begin(core, given)], part, whole)
    if all(s.is_product for s in ranges):
        return y if len(part) == len(size) else tf.reshape(y, size)
    y = tf.reshape(y, [s.size if s.is_product else s.whole for s in ranges])
    return tf.slice(y, [0 if s.is_product else s.first(core) for s in ranges], size)
