"""The layouts in which to transform dimensions one after the other. Each is whole on every core when its turn comes.

An alltoall moves the split of a dimension to another dimension, whose size it divides. If there is none, the dimension
is gathered. The other dimension is already transformed, or is not transformed at all. Take x:8/rows y:8 on "rows:4",
both to be transformed:

    1. y is whole: transform it.
    2. x:8/rows y:8 -> x:8 y:8/rows, an alltoall of 3/4 of the slice.
    3. x is whole: transform it.

The sequence that sends the fewest bytes is a shortest path. Its nodes are (layout, dimensions left), its edges
alltoalls and gathers.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Iterator, Sequence

from meshtf.dimension import Shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning.moves.reshard import cheapest_route


@dataclasses.dataclass(frozen=True, slots=True)
class Stage:
    """A layout, and the dimensions (by position) that are transformed while a tensor has it."""

    layout: TensorLayout
    dims: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class _Search:
    shape: Shape
    dtype_size: int
    mesh_shape: Shape

    def bytes_between(self, source: TensorLayout, target: TensorLayout) -> int:
        return cheapest_route(source, (), target, self.shape, self.dtype_size, self.mesh_shape).bytes_sent

    def following(self, layout: TensorLayout, left: frozenset[int]) -> Iterator[TensorLayout]:
        """The layouts in which one more of the dimensions left is whole."""
        for dim in sorted(left):
            base = _replaced(layout.axes, dim, ())
            for targets in itertools.product([*range(len(base)), None], repeat=len(layout.axes[dim])):
                axes = base
                for axis, target in zip(layout.axes[dim], targets, strict=True):
                    if target is not None:
                        axes = _replaced(axes, target, (*axes[target], axis))
                if dim not in targets and self._is_legal(axes):
                    yield TensorLayout(axes)

    def work(self, layout: TensorLayout) -> int:
        """The number of elements that each core holds."""
        return self.shape.size // axes_size(layout.used, self.mesh_shape)

    def _is_legal(self, axes: tuple[Axes, ...]) -> bool:
        return all(d.size % axes_size(a, self.mesh_shape) == 0 for d, a in zip(self.shape, axes, strict=True))


def cheapest_stages(
    sources: Sequence[TensorLayout],
    target: TensorLayout,
    shape: Shape,
    dims: Sequence[int],
    dtype_size: int,
    mesh_shape: Shape,
) -> list[Stage]:
    """The stages that transform `dims`, starting from one of the layouts `sources` in which a tensor is held.

    They send the fewest bytes, including the result's move to `target`. Among such stages they do the least work.
    """
    search, numbers = _Search(shape, dtype_size, mesh_shape), itertools.count()
    heap: list[tuple[int, int, int, bool, TensorLayout, frozenset[int], tuple[Stage, ...]]] = [
        (0, 0, next(numbers), False, source, frozenset(dims), ()) for source in dict.fromkeys(sources)
    ]  # bytes; work; tie-break; whether the way to the target is counted; layout; dimensions left; stages
    done: set[tuple[bool, TensorLayout, frozenset[int]]] = set()
    while heap:
        sent, work, _, is_complete, layout, left, stages = heapq.heappop(heap)
        if is_complete:
            return list(stages)
        whole = tuple(sorted(d for d in left if not layout.axes[d]))
        if whole:
            stages, left = (*stages, Stage(layout, whole)), left - set(whole)
            work += search.work(layout) * len(whole)
        if (is_complete, layout, left) in done:
            continue
        done.add((is_complete, layout, left))
        if not left:
            total = sent + search.bytes_between(layout, target)
            heapq.heappush(heap, (total, work, next(numbers), True, layout, left, stages))
            continue
        for after in search.following(layout, left):
            cost = sent + search.bytes_between(layout, after)
            heapq.heappush(heap, (cost, work, next(numbers), False, after, left, stages))
    raise AssertionError("gathering every dimension is always a way")


def _replaced(axes: tuple[Axes, ...], dim: int, new: Axes) -> tuple[Axes, ...]:
    return (*axes[:dim], new, *axes[dim + 1 :])
