"""All layouts that a tensor can have."""

from __future__ import annotations

import itertools

from meshtf.dimension import Shape
from meshtf.layout import Axes, axes_size


def every_layout(sizes: tuple[int, ...], mesh_shape: Shape) -> list[tuple[Axes, ...]]:
    """Each dimension over any ordered axes that divide it, no axis twice."""
    names = mesh_shape.dimension_names
    orders = [axes for n in range(len(names) + 1) for axes in itertools.permutations(names, n)]
    return [
        chosen
        for chosen in itertools.product(orders, repeat=len(sizes))
        if len({a for axes in chosen for a in axes}) == sum(map(len, chosen))
        and all(n % axes_size(axes, mesh_shape) == 0 for n, axes in zip(sizes, chosen, strict=True))
    ]
