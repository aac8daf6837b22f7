"""Every layout that tensors of given shapes can have on a mesh."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping

from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.graph.graph import Graph
from meshtf.layout import Axes, LayoutRules, axes_size, padding_share

_MOST_LISTED = 4096
_DRAWS = 512


def legal_layouts(shapes: Iterable[ShapeLike], mesh_shape: ShapeLike, limit: int | None = None) -> list[LayoutRules]:
    """Lists rules under which every shape has a legal layout: each size divides, and no axis splits two dimensions.

    A dimension may be split over one axis, or over several axes in any order. With `limit`, the list has only this many
    rules, chosen evenly from all, or from random ones if all are more than 4,096. The unsplit layout comes first.
    """
    named, mesh = [convert_to_shape(s) for s in shapes], convert_to_shape(mesh_shape)
    choices, beside = list(choices_by_dimension(named, mesh).items()), neighbours(named)
    found = list(itertools.islice(_extended({}, choices, beside), None if limit is None else _MOST_LISTED + 1))
    if limit is not None and len(found) > _MOST_LISTED:
        found = _drawn(choices, beside)
    found.sort(key=lambda rules: sum(len(axes) for _, axes in rules.rules))
    if limit is None or len(found) <= limit:
        return found
    step = (len(found) - 1) / max(1, limit - 1)
    return [found[round(i * step)] for i in range(limit)]


def shapes_of(graph: Graph) -> list[Shape]:
    """Lists the shapes of a program's tensors, each once."""
    return list(dict.fromkeys(t.shape for operation in graph.operations for t in operation.outputs))


def choices_by_dimension(shapes: Iterable[Shape], mesh_shape: Shape, max_padding: float = 0.0) -> dict[str, list[Axes]]:
    """Returns, for each dimension's name, the tuples of mesh axes over which all sizes of that dimension can be split.

    Up to a share `max_padding` of a size may be padding.
    """
    sizes: dict[str, set[int]] = {}
    for dim in itertools.chain.from_iterable(shapes):
        sizes.setdefault(dim.name, set()).add(dim.size)
    names = [axis.name for axis in mesh_shape if axis.size > 1]
    every = [axes for n in range(len(names) + 1) for axes in itertools.permutations(names, n)]
    return {
        name: [axes for axes in every if all(padding_share(n, axes_size(axes, mesh_shape)) <= max_padding for n in own)]
        for name, own in sizes.items()
    }


def neighbours(shapes: Iterable[Shape]) -> dict[str, set[str]]:
    """Returns, for each dimension's name, the names of other dimensions that occur with it in a shape."""
    found: dict[str, set[str]] = {}
    for shape in shapes:
        names = set(shape.dimension_names)
        for name in names:
            found.setdefault(name, set()).update(names - {name})
    return found


def _extended(
    chosen: Mapping[str, Axes], left: list[tuple[str, list[Axes]]], beside: Mapping[str, set[str]]
) -> Iterator[LayoutRules]:
    if not left:
        yield LayoutRules({name: axes for name, axes in chosen.items() if axes})
        return
    (name, choices), *rest = left
    taken = {a for other in beside[name] for a in chosen.get(other, ())}
    for axes in choices:
        if not taken & set(axes):
            yield from _extended({**chosen, name: axes}, rest, beside)


def _drawn(choices: list[tuple[str, list[Axes]]], beside: Mapping[str, set[str]]) -> list[LayoutRules]:
    """Draws rules at random, always the same. The unsplit layout is one of them."""
    rng, found = random.Random(0), {LayoutRules({}): None}
    for _ in range(_DRAWS):
        chosen: dict[str, Axes] = {}
        for name, every in rng.sample(choices, len(choices)):
            taken = {a for other in beside[name] for a in chosen.get(other, ())}
            chosen[name] = rng.choice([axes for axes in every if not taken & set(axes)])
        found[LayoutRules({name: axes for name, axes in chosen.items() if axes})] = None
    return list(found)
