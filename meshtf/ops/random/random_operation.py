"""Random tensors and dropout, the same under every layout.

The bits are a function of the program's seed, the operation's scope path and name, the program's step, and the position
in the whole tensor. Each core computes those of its slice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from meshtf import random
from meshtf.dimension import Dimension, Shape
from meshtf.graph import Mesh, Operation
from meshtf.layer_scopes import abreast_of, scopes_of, without_numbers
from meshtf.layout import Axes, TensorLayout
from meshtf.ops.variables.program_step import program_step
from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.plan import Core, Value
from meshtf.planning.planner import Planner
from meshtf.planning.work_facts import WorkFacts

Draw = Callable[..., tf.Tensor]
"""`draw(key, begin, slice_shape, whole_shape)`."""


Cuts: TypeAlias = tuple[tuple[int, Value], ...]
"""Of each cut into micro-batches, the last first: how many there are, and the number of this one."""


class RandomOperation(Operation):
    """Draws a slice of a random tensor. Its inputs, where it has some: what layers that are computed at once are told
    apart by, along a dimension that the tensor then has; and the program's step."""

    takes_padding = True

    def __init__(self, mesh: Mesh, shape: Shape, dtype: tf.DType, draw: Draw, name: str) -> None:
        self._abreast = abreast_of(mesh.graph.layer_scopes)
        told_by = self._abreast.inputs if self._abreast else []
        steps = [] if mesh.graph.is_initial else [program_step(mesh)]
        if self._abreast and not shape.has(self._abreast.along.name):
            shape = Shape([self._abreast.along, *shape])
        super().__init__([*told_by, *steps], [(shape, dtype)], name=name, mesh=mesh)
        self._draw = draw
        self._steps = steps
        self._layer_scopes = scopes_of(self.name, self.graph.layer_scopes)

    @property
    def has_gradient(self) -> bool:
        return False

    def lower(self, planner: Planner) -> None:
        (output,) = self.outputs
        layout = planner.layouts[output]
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        along = output.shape.axis(self._abreast.along) if self._abreast else None
        told_by = self._told_by(planner, () if along is None else layout.axes[along])
        stretches = [
            _Stretch(dim.size, n, axes, *self._cuts(dim, told_by[1:], planner))
            for i, (dim, n, axes) in enumerate(zip(output.shape, size, layout.axes, strict=True))
            if i != along
        ]
        counts = [*self._layer_numbers(planner, told_by), *map(planner.read, self._steps), *planner.iterations]
        of_layer = _of_layer(
            planner.random_key(without_numbers(self.name, self._layer_scopes)), self._draw, counts, stretches
        )
        known_later = [*told_by, *(c for c in counts if isinstance(c, Value))]
        inputs = list(dict.fromkeys([*known_later, *(number for s in stretches for _, number in s.cuts)]))

        def emit(core: Core, *numbers: tf.Tensor) -> tf.Tensor:
            given = dict(zip(inputs, numbers, strict=True))
            if along is None:
                return of_layer(core, given)
            each = [{**given, **{v: given[v][n] for v in told_by}} for n in range(size[along])]
            return tf.stack([of_layer(core, own) for own in each], along)

        spec = (output.shape, output.dtype, layout)
        flops, facts = math.prod(size), WorkFacts(draws_random_bits=True)
        planner.write(output, planner.compute("random", emit, inputs, [spec], flops=flops, facts=facts)[0])

    def _told_by(self, planner: Planner, axes: Axes) -> list[Value]:
        """The layers' numbers, and those of their micro-batches, of the layers that this core has."""
        return [planner.read(x, TensorLayout((axes,))) for x in (self._abreast.inputs if self._abreast else [])]

    def _cuts(self, dim: Dimension, microbatches: list[Value], planner: Planner) -> tuple[Cuts, int]:
        """How a dimension is cut into micro-batches, and which positions of it stay together: see `_Stretch`."""
        cuts, neighbours = [], []
        own = self._abreast.cut if self._abreast else None
        if own is not None and dim.name in own.names:
            cuts += [(own.count, number) for number in microbatches]
            neighbours.append(own.neighbours(dim))
        for cut, number in planner.microbatches:
            if self._is_cut(dim, cut):
                cuts.append((cut.count, number))
                neighbours.append(cut.neighbours_along(dim))
        return tuple(cuts), neighbours[0] if neighbours else 1

    def _is_cut(self, dim: Dimension, cut: MicrobatchCut) -> bool:
        """Whether a loop's cut of the batch cuts this dimension: where layers abreast cut once more, so does it."""
        shape, own = self.outputs[0].shape, self._abreast.cut if self._abreast else None
        if own is not None and own.names[0] == cut.batch.name and any(d.name in own.names for d in shape):
            return dim.name in own.names
        return dim == cut.dimension(shape)

    def _layer_numbers(self, planner: Planner, told_by: list[Value]) -> list[int | Value]:
        """The numbers of the layers around, outermost first: known where they are unrolled, counted in a scan."""
        counted = iter(planner.layers)
        named: list[int | Value] = []
        for scope in self._layer_scopes:
            if scope.abreast is not None:
                named.append(told_by[0])
            else:
                named.append(next(counted) if scope.number is None else scope.number)
        return [*named, *counted]


@dataclasses.dataclass(frozen=True)
class _Stretch:
    """What a core draws of one dimension.

    whole: the dimension's size. size: the core's. axes: over which it is split.
    cuts: a micro-batch is every so-manieth element.
    neighbours: elements that stay together where it is cut, and count as one there.
    """

    whole: int
    size: int
    axes: Axes
    cuts: Cuts = ()
    neighbours: int = 1

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
        if self.neighbours == 1:
            return [first, *numbers]
        neighbourhood = first // self.neighbours
        return [neighbourhood, *numbers, first - neighbourhood * self.neighbours]

    def first(self, core: Core) -> tf.Tensor | int:
        return core.coordinate(self.axes) * self.size if self.axes else 0

    @property
    def _outer(self) -> int:
        return self.whole // self.neighbours


def _of_layer(
    key: random.Key, draw: Draw, counts: Sequence[int | Value], stretches: Sequence[_Stretch]
) -> Callable[[Core, dict[Value, tf.Tensor]], tf.Tensor]:
    """Draws the slice of one layer, with the numbers that are known when the program runs."""
    whole = [n for s in stretches for n in s.whole_box]
    part = [n for s in stretches for n in s.part_box]
    size = [s.size for s in stretches]

    def drawn(core: Core, given: dict[Value, tf.Tensor]) -> tf.Tensor:
        own = key
        for count in counts:
            own = random.fold_in(own, given[count] if isinstance(count, Value) else count)
        y = draw(own, [place for s in stretches for place in s.begin(core, given)], part, whole)
        if all(s.is_box for s in stretches):
            return y if len(part) == len(size) else tf.reshape(y, size)
        y = tf.reshape(y, [s.size if s.is_box else s.whole for s in stretches])
        return tf.slice(y, [0 if s.is_box else s.first(core) for s in stretches], size)

    return drawn
