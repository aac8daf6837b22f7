"""Where a core stands in the mesh, and which block of a tensor it holds. Cores are numbered row-major."""

from __future__ import annotations

from collections.abc import Callable

from meshtf.dimension import Shape
from meshtf.layout import Axes


def coordinates(core: int, mesh_shape: Shape) -> dict[str, int]:
    """The core's coordinate along each mesh axis."""
    result: dict[str, int] = {}
    for dim in reversed(mesh_shape.dims):
        core, result[dim.name] = divmod(core, dim.size)
    return {name: result[name] for name in mesh_shape.dimension_names}


def position(core: int, axes: Axes, mesh_shape: Shape) -> int:
    """Row-major position of the core along an ordered tuple of mesh axes."""
    own, result = coordinates(core, mesh_shape), 0
    for axis in axes:
        result = result * mesh_shape.get_dim_by_name(axis).size + own[axis]
    return result


def block(core: int, axes: tuple[Axes, ...], mesh_shape: Shape) -> tuple[int, ...]:
    """Which block of a tensor, whose dimensions are split over these axes, the core holds."""
    return tuple(position(core, own, mesh_shape) for own in axes)


def destinations(axes: Axes, place: Callable[[int], int], mesh_shape: Shape) -> tuple[int, ...]:
    """For each core, the one at position `place(its own)` along these mesh axes, and beside it along the rest."""
    sizes = {d.name: d.size for d in mesh_shape}
    found = []
    for core in range(mesh_shape.size):
        own, left = coordinates(core, mesh_shape), place(position(core, axes, mesh_shape))
        for axis in reversed(axes):
            left, own[axis] = divmod(left, sizes[axis])
        number = 0
        for name, size in sizes.items():
            number = number * size + own[name]
        found.append(number)
    return tuple(found)
