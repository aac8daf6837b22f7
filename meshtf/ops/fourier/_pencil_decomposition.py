"""In which layouts to transform dimensions one after the other, each whole on every core when its turn comes.

A dimension that is split hands its split to another one, transformed already or not to be transformed at all (an
alltoall), where that divides; else it is gathered. The sequence that sends the fewest bytes is a shortest path over
(layout, dimensions left).
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
        """Layouts in which one more of the dimensions left is whole."""
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
        """What each core holds, in elements."""
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
    """The stages that transform `dims`, from one of the layouts that a tensor is held in.

    They are those that send the fewest bytes, the result's way to `target` counted, and among them do the least work.
    """
    search, numbers = _Search(shape, dtype_size, mesh_shape), itertools.count()
    heap: list[tuple[int, int, int, bool, TensorLayout, frozenset[int], tuple[Stage, ...]]] = [
        (0, 0, next(numbers), False, source, frozenset(dims), ()) for source in dict.fromkeys(sources)
    ]  # bytes, work, tie-break, whether the way to the target is counted, layout, dimensions left, stages
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
