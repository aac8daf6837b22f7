"""The common refinement of two shapes of equal size: every dimension of both shapes is a product of its factors.

Over factors a reshape between split tensors is a change of layout like any other. For example, the reshape from
[batch:rows, heads*key] to [batch:rows, heads:cols, key] has the factors (batch, heads, key). A dimension split into n
parts adds a factor n, so that the split of a part of a dimension can be written down.

Another example: [heads*key:64] and [heads:8 key:8] have the factors (8, 8). If the 64 are split over cols:4, each core
holds two heads. The factors are then (4, 2, 8), and the first is split over `cols`. So the reshape sends nothing, and
gives [heads:8/cols key:8].

Boundaries may not divide one another, as in [6, 4] and [4, 6]. Then the part between two boundaries that both shapes
share is cut only where a split asks for it.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes, TensorLayout, axes_size


@dataclasses.dataclass(frozen=True, slots=True)
class Refinement:
    """Sizes of the factors, and the layouts of the source and the target over them."""

    sizes: tuple[int, ...]
    source: TensorLayout
    target: TensorLayout

    def merged(self, mesh_shape: Shape) -> Refinement:
        """The same layouts over the fewest factors. Adjacent factors are merged if both layouts can express their
        splits as one split of their product.

        An axis moves from one merged factor to another in one collective. It can no longer move from a part of a
        factor.
        """
        sizes, sources, targets = [self.sizes[:1], self.source.axes[:1], self.target.axes[:1]]
        for size, source, target in zip(self.sizes[1:], self.source.axes[1:], self.target.axes[1:], strict=True):
            # Two splits are one split of the product if the inner factor is whole, or if the outer one is split fully.
            # Else a slice would not be contiguous in the product.
            if all(
                not axes or axes_size(before[-1], mesh_shape) == sizes[-1]
                for before, axes in ((sources, source), (targets, target))
            ):
                sizes = (*sizes[:-1], sizes[-1] * size)
                sources, targets = ((*x[:-1], x[-1] + axes) for x, axes in ((sources, source), (targets, target)))
            else:
                sizes, sources, targets = (*sizes, size), (*sources, source), (*targets, target)
        return Refinement(sizes, TensorLayout(sources), TensorLayout(targets))


def refine(
    source: Shape, source_layout: TensorLayout, target: Shape, target_layout: TensorLayout, mesh_shape: Shape
) -> Refinement | None:
    """The factors over which both layouts can be expressed, or None if there are none."""
    # Cuts are products of sizes, counted from the outermost dimension: [4, 6] has the cuts 1, 4 and 24.
    cuts = {1, source.size}
    for shape, layout in ((source, source_layout), (target, target_layout)):
        cuts |= set(_cuts(shape, layout, mesh_shape))
    chain = _chain(source, target, sorted(cuts))
    if chain is None:
        return None
    sizes = tuple(b // a for a, b in itertools.pairwise(chain))
    source_axes = _over_factors(source, source_layout, chain, mesh_shape)
    target_axes = _over_factors(target, target_layout, chain, mesh_shape)
    if source_axes is None or target_axes is None:
        return None
    return Refinement(sizes, TensorLayout(source_axes), TensorLayout(target_axes))


def factor_shape(shape: Shape, sizes: Sequence[int]) -> Shape:
    """The factors as dimensions, named for readers after those of `shape`: `heads`, or `heads[0]` where it is cut."""
    pieces: dict[str, list[int]] = {}
    start = 1
    for i, size in enumerate(sizes):
        pieces.setdefault("*".join(_overlapping(shape, start, start * size)), []).append(i)
        start *= size
    names = {i: name if len(own) == 1 else f"{name}[{k}]" for name, own in pieces.items() for k, i in enumerate(own)}
    return Shape([Dimension(names[i], size) for i, size in enumerate(sizes)])


def coarser(layout: TensorLayout) -> Iterator[TensorLayout]:
    """The layout itself, then those with fewer of its minor axes, the finest first."""
    choices = [[axes[:n] for n in range(len(axes), -1, -1)] for axes in layout.axes]
    found = [TensorLayout(axes) for axes in itertools.product(*choices)]
    return iter(sorted(found, key=lambda found_layout: -sum(map(len, found_layout.axes))))


def over_dimensions(shape: Shape, sizes: Sequence[int], axes: Sequence[Axes], mesh_shape: Shape) -> TensorLayout | None:
    """The layout over a shape that equals a layout over its factors, or None if a slice is not a box."""
    result, factor = [], 0
    for dim in shape:
        own: Axes = ()
        is_open, product = True, 1
        while product < dim.size and factor < len(sizes):
            # A split inside a factor that is not split fully would give each core several runs of the dimension.
            if axes[factor] and not is_open:
                return None
            own += axes[factor]
            is_open = is_open and axes_size(axes[factor], mesh_shape) == sizes[factor]
            product *= sizes[factor]
            factor += 1
        if product != dim.size:
            return None
        result.append(own)
    return TensorLayout(tuple(result))


def _overlapping(shape: Shape, low: int, high: int) -> Iterator[str]:
    """The names of the dimensions that overlap the factor between two products of sizes."""
    before = 1
    for dim in shape:
        if dim.size > 1 and low < before * dim.size and high > before:
            yield dim.name
        before *= dim.size


def _cuts(shape: Shape, layout: TensorLayout, mesh_shape: Shape) -> Iterator[int]:
    before = 1
    for dim, axes in zip(shape, layout.axes, strict=True):
        for n in range(1, len(axes) + 1):
            yield before * axes_size(axes[:n], mesh_shape)
        before *= dim.size
        yield before


def _chain(source: Shape, target: Shape, cuts: list[int]) -> list[int] | None:
    """The cuts, if each divides the next; else those that divide the boundaries which both shapes share."""
    if source.size == 0:
        return None
    if all(b % a == 0 for a, b in itertools.pairwise(cuts)):
        return cuts
    # In [6, 4] and [4, 6] neither 6 nor 4 divides the other. Such cuts are dropped, and only shared boundaries stay.
    shared = sorted(_boundaries(source) & _boundaries(target))
    chain = [1]
    for low, high in itertools.pairwise(shared):
        inner = [c for c in cuts if low < c < high]
        chain += _longest_chain(low, high, inner, source, target) + [high]
    return chain


def _longest_chain(low: int, high: int, cuts: list[int], source: Shape, target: Shape) -> list[int]:
    """The cuts between two shared boundaries that lie in the leading dimension of both shapes, and that divide it and
    one another."""
    first = [min((b for b in _boundaries(s) if b > low), default=high) for s in (source, target)]
    chain = [low]
    for cut in cuts:
        if cut % chain[-1] == 0 and all(f % cut == 0 for f in first) and cut < min(first):
            chain.append(cut)
    return chain[1:]


def _boundaries(shape: Shape) -> set[int]:
    return {math.prod(shape.to_integer_list[:i]) for i in range(shape.ndims + 1)}


def _over_factors(
    shape: Shape, layout: TensorLayout, chain: Sequence[int], mesh_shape: Shape
) -> tuple[Axes, ...] | None:
    result: list[Axes] = [()] * (len(chain) - 1)
    before = 1
    for dim, axes in zip(shape, layout.axes, strict=True):
        position, left = before, list(axes)
        while left:
            taken = _covering(position, left, chain, mesh_shape)
            if taken is None:
                return None
            result[chain.index(position)] = taken
            position *= axes_size(taken, mesh_shape)
            left = left[len(taken) :]
        before *= dim.size
    return tuple(result)


def _covering(position: int, axes: list[str], chain: Sequence[int], mesh_shape: Shape) -> Axes | None:
    """The axes that split the factor at `position`: the first axes that split it fully, or all axes if they divide it;
    else None."""
    if position not in chain or position == chain[-1]:
        return None
    size = chain[chain.index(position) + 1] // position
    for n in range(len(axes), 0, -1):
        parts = axes_size(axes[:n], mesh_shape)
        if parts == size or (n == len(axes) and size % parts == 0):
            return tuple(axes[:n])
    return None
