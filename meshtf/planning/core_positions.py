"""Where a core stands in the mesh, and which block of a tensor it holds. Cores are numbered row-major."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from meshtf.dimension import Shape
from meshtf.layout import Axes, axes_size


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
    """The number of the block, in each dimension, that a core holds of a tensor split over these axes."""
    return tuple(position(core, own, mesh_shape) for own in axes)


def positions(axes: Axes, mesh_shape: Shape) -> np.ndarray:
    """`position` of every core, [cores] int64."""
    cores, inner, own = np.arange(mesh_shape.size), 1, {}
    for dim in reversed(mesh_shape.dims):
        own[dim.name] = cores // inner % dim.size
        inner *= dim.size
    sizes = {d.name: d.size for d in mesh_shape}
    result = np.zeros(mesh_shape.size, np.int64)
    for axis in axes:
        result = result * sizes[axis] + own[axis]
    return result


def groups_along(sizes: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """`int[groups, members]`: cores of a mesh of these sizes that differ only along some axes. `axes` are indices. A
    group is in order of the position along the axes, the first axis major."""
    others = [axis for axis in range(len(sizes)) if axis not in axes]
    cores = np.arange(math.prod(sizes)).reshape(sizes).transpose([*others, *axes])
    return cores.reshape(-1, math.prod(sizes[axis] for axis in axes))


def groups_over(axes: Sequence[str], mesh_shape: Shape) -> np.ndarray:
    """`int[groups, members]`: cores that differ only along `axes`, by position along them, the first axis major."""
    names = mesh_shape.dimension_names
    return groups_along(mesh_shape.to_integer_list, [names.index(axis) for axis in axes])


def destinations(axes: Axes, place: Callable[[int], int], mesh_shape: Shape) -> tuple[int, ...]:
    """The destination of each core: position `place(own position)` along these mesh axes, and its own position along
    the rest.

    On a mesh rows:2 cols:2, `destinations(("cols",), lambda j: (j + 1) % 2, mesh)` is (1, 0, 3, 2).
    """
    sizes = {d.name: d.size for d in mesh_shape}
    before = positions(axes, mesh_shape)
    after = np.array([place(j) for j in range(axes_size(axes, mesh_shape))], np.int64)[before]
    inner, names = 1, mesh_shape.dimension_names
    found = np.arange(mesh_shape.size)
    for axis in reversed(axes):
        stride = math.prod(sizes[name] for name in names[names.index(axis) + 1 :])
        found += (after // inner % sizes[axis] - before // inner % sizes[axis]) * stride
        inner *= sizes[axis]
    return tuple(found.tolist())
