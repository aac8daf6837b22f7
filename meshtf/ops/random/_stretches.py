"""What a core draws of each dimension of a random tensor, where loops cut it into micro-batches too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Dimension, Shape
from meshtf.layer_scopes import Abreast
from meshtf.layout import Axes
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner

Draw = Callable[..., tf.Tensor]
"""`draw(key, begin, slice_shape, whole_shape)`."""

Cuts: TypeAlias = tuple[tuple[int, Value], ...]
"""Of each cut into parts, the last first: how many there are, and the number of this one."""


@dataclasses.dataclass(frozen=True)
class Stretch:
    """What a core draws of one dimension.

    whole: the dimension's size. size: the core's. axes: over which it is split.
    cuts: a micro-batch is every so-manieth element.
    neighbours: elements that stay together where it is cut, and count as one there.
    origin: where what all cores draw of it begins, known when the program runs; at its beginning by default.
    """

    whole: int
    size: int
    axes: Axes
    cuts: Cuts = ()
    neighbours: int = 1
    origin: Value | None = None

    @property
    def is_box(self) -> bool:
        """Whether a core's part is whole neighbourhoods, or within one."""
        return not (self.size % self.neighbours and self.neighbours % self.size)

    @property
    def whole_box(self) -> list[int]:
        """To draw, a dimension that is cut is several: its neighbourhoods, one for each cut, and the neighbours."""
        counts = [count for count, _ in self.cuts]
        return [self.whole, *counts] if self.neighbours == 1 else [self._outer, *counts, self.neighbours]

    @property
    def part_box(self) -> list[int]:
        """Of each of these, how much is drawn: all of the micro-batch, where a core's part is no box."""
        size, ones = (self.size if self.is_box else self.whole), [1 for _ in self.cuts]
        inner = min(size, self.neighbours)
        return [size, *ones] if self.neighbours == 1 else [size // inner, *ones, inner]

    def begin(self, core: Core, given: dict[Value, tf.Tensor]) -> list[tf.Tensor | int]:
        """Where in each of these what is drawn begins."""
        first, numbers = (self.first(core) if self.is_box else 0), [given[number] for _, number in self.cuts]
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
    dim: Dimension, shape: Shape, abreast: Abreast | None, microbatches: Sequence[Value], planner: Planner
) -> tuple[Cuts, int]:
    """How a dimension of a random tensor is cut into micro-batches, and which positions of it stay together.

    microbatches: of layers that are computed at once, the number of each one's.
    """
    cuts, neighbours = [], []
    own = abreast.cut if abreast else None
    if own is not None and dim.name in own.names:
        cuts += [(own.count, number) for number in microbatches]
        neighbours.append(own.neighbours(dim))
    for cut, number in planner.loops.microbatches:
        if _is_cut(dim, shape, abreast, cut):
            cuts.append((cut.count, number))
            neighbours.append(cut.neighbours_along(dim))
    return tuple(cuts), neighbours[0] if neighbours else 1


def _is_cut(dim: Dimension, shape: Shape, abreast: Abreast | None, cut: MicrobatchCut) -> bool:
    """Whether a loop's cut of the batch cuts this dimension: where layers abreast cut once more, so does it."""
    own = abreast.cut if abreast else None
    if own is not None and own.names[0] == cut.batch.name and any(d.name in own.names for d in shape):
        return dim.name in own.names
    return dim == cut.dimension(shape)


def drawn_part(
    draw: Draw, key: random.Key, stretches: Sequence[Stretch], core: Core, given: dict[Value, tf.Tensor]
) -> tf.Tensor:
    """The core's part, drawn with the numbers that are known when the program runs."""
    whole = [n for s in stretches for n in s.whole_box]
    part = [n for s in stretches for n in s.part_box]
    size = [s.size for s in stretches]
    y = draw(key, [place for s in stretches for place in s.begin(core, given)], part, whole)
    if all(s.is_box for s in stretches):
        return y if len(part) == len(size) else tf.reshape(y, size)
    y = tf.reshape(y, [s.size if s.is_box else s.whole for s in stretches])
    return tf.slice(y, [0 if s.is_box else s.first(core) for s in stretches], size)
