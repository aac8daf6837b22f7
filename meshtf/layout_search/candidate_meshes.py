"""The meshes that a search tries: the given mesh, or meshes with the given number of cores."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator

from meshtf.dimension import Shape, ShapeLike, convert_to_shape
from meshtf.divisors import divisors
from meshtf.errors import UsageError

ANY_MESH_AXES = ("rows", "cols", "planes")
"""The names of the axes of meshes that the search chooses."""

AUTO_MESH = re.compile(r"auto:(\d{1,9})")
"""The pattern of a mesh whose axes the search chooses: "auto:512" has 512 cores."""

_MESHES_OF_AXES = 30


def candidate_meshes(mesh_shape: ShapeLike) -> list[Shape]:
    """Returns the given mesh, or all meshes with one to three axes and the given number of cores.

    No axis is longer than the one before it.
    """
    match = AUTO_MESH.fullmatch(mesh_shape) if isinstance(mesh_shape, str) else None
    if match is None:
        given = convert_to_shape(mesh_shape)
        if given is None or given.size < 1:
            raise UsageError('auto_layout needs a mesh shape, such as "rows:2;cols:4" or "auto:8"')
        return [given]
    cores = int(match[1])
    if cores < 1:
        raise UsageError(f'mesh "{mesh_shape}" has no cores')
    found = [Shape([(ANY_MESH_AXES[0], cores)])]
    for count in range(2, len(ANY_MESH_AXES) + 1):
        # A number with many divisors has thousands of meshes. Take those with the most similar axes.
        most_even = heapq.nsmallest(_MESHES_OF_AXES, _falling_factors(cores, count, cores), key=sum)
        found += [Shape(list(zip(ANY_MESH_AXES, sizes, strict=False))) for sizes in most_even]
    return found


def _falling_factors(product: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yields all ways to write a product with `count` factors, each above 1 and none larger than the one before."""
    if count == 1:
        if product <= most:
            yield (product,)
        return
    for first in reversed(divisors(product)):
        if 1 < first <= most and first < product:
            yield from ((first, *others) for others in _falling_factors(product // first, count - 1, first))
