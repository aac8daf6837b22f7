"""Computes core numbers, coordinates, and groups of cores that differ only along some axes.

Core numbers ("pnum") are row-major over the mesh: the last axis is fastest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TypeAlias, cast

import numpy as np

from meshtf.dimension import Shape, ShapeLike, shape_of
from meshtf.errors import LayoutError, nearest
from meshtf.planning.core_positions import groups_along

MeshShape: TypeAlias = "ShapeLike | Sequence[int]"
"""A mesh's named shape, or only its sizes (axes are then given by index)."""


def pnum_to_processor_coordinates(mesh_shape: MeshShape, pnum: int) -> list[int]:
    """The position of core `pnum` along each mesh axis.

    Examples:
      >>> mtf.pnum_to_processor_coordinates("rows:2;cols:3", 4)
      [1, 1]
    """
    sizes = _sizes(mesh_shape)
    if not 0 <= pnum < math.prod(sizes):
        raise LayoutError(f"core {pnum} is not one of the {math.prod(sizes)} cores of mesh {sizes}")
    coordinates = []
    for size in reversed(sizes):
        pnum, coordinate = divmod(pnum, size)
        coordinates.append(coordinate)
    return coordinates[::-1]


def processor_coordinates_to_pnum(mesh_shape: MeshShape, coord: Sequence[int]) -> int:
    """The core at position `coord`, one entry per mesh axis.

    Examples:
      >>> mtf.processor_coordinates_to_pnum("rows:2;cols:3", [1, 1])
      4
    """
    sizes = _sizes(mesh_shape)
    if len(coord) != len(sizes) or not all(0 <= c < size for c, size in zip(coord, sizes, strict=False)):
        raise LayoutError(f"coordinates {list(coord)} are not inside mesh {sizes}")
    pnum = 0
    for coordinate, size in zip(coord, sizes, strict=True):
        pnum = pnum * size + coordinate
    return pnum


def pnum_to_group(mesh_shape: MeshShape, group_dims: Iterable[str | int], pnum: int) -> int:
    """The number of the group of core `pnum`, row-major over the axes that are not in `group_dims`.

    Examples:
      >>> mtf.pnum_to_group("rows:2;cols:3", ["cols"], 4)
      1
    """
    grouped = set(_axis_indices(mesh_shape, group_dims))
    group = 0
    for axis, (size, c) in enumerate(
        zip(_sizes(mesh_shape), pnum_to_processor_coordinates(mesh_shape, pnum), strict=True)
    ):
        if axis not in grouped:
            group = group * size + c
    return group


def processor_groups(mesh_shape: MeshShape, group_dims: Iterable[str | int]) -> list[list[int]]:
    """The groups of cores that differ only along `group_dims`, by group number. Each group is sorted by core number.

    Examples:
      >>> mtf.processor_groups("rows:2;cols:3", ["cols"])
      [[0, 1, 2], [3, 4, 5]]
    """
    return np.sort(ordered_groups(mesh_shape, group_dims), axis=1).tolist()


def ordered_groups(mesh_shape: MeshShape, axes: Iterable[str | int]) -> np.ndarray:
    """`int64[groups, members]`: the groups of `processor_groups`, but each sorted by position, the first axis major.

    This is the order of the blocks of a dimension that is split over `axes`: block j is on member j.
    """
    return groups_along(_sizes(mesh_shape), _axis_indices(mesh_shape, axes))


def _sizes(mesh_shape: MeshShape) -> list[int]:
    named = _named(mesh_shape)
    return cast("list[int]", list(mesh_shape)) if named is None else named.to_integer_list  # type: ignore[arg-type]


def _named(mesh_shape: MeshShape) -> Shape | None:
    """The named shape; None if there are only sizes."""
    if isinstance(mesh_shape, Sequence) and all(isinstance(size, int) for size in mesh_shape):
        return None
    return shape_of(cast("ShapeLike", mesh_shape))


def _axis_indices(mesh_shape: MeshShape, axes: Iterable[str | int]) -> list[int]:
    named = _named(mesh_shape)
    names = [] if named is None else named.dimension_names
    ndims, indices = len(_sizes(mesh_shape)), []
    for axis in axes:
        if isinstance(axis, str) and axis not in names:
            raise LayoutError(f'mesh {mesh_shape} has no axis "{axis}"{nearest(axis, names)}')
        index = names.index(axis) if isinstance(axis, str) else axis
        if not 0 <= index < ndims or index in indices:
            raise LayoutError(f"axis {axis!r} of {mesh_shape} does not exist or stands twice in {list(axes)}")
        indices.append(index)
    return indices
