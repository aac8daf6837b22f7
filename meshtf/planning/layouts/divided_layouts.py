"""Divides variables among the cores along some mesh axes, and chooses the axes to take apart for that.

For example, [d_model:768 d_ff:768] repeated over data:512 has no dimension that 512 divides. In parts of 16 and 32 the
axis divides both: `data.0` splits d_model into slices of 48, and `data.1` splits d_ff into slices of 24.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from meshtf.axis_parts import WHOLE_AXES, AxisParts, part_names
from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.planning.layouts.padding import padded_shape

MOST_PADDING = 1 / 8
"""The most padding, as a share of a variable's own elements: with more, the variable's update is not divided."""

MOST_MESH_AXES = 6
"""The most axes of a mesh after axes are taken apart. The search for a route between two layouts tries all orders of
the axes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Divisible:
    """A variable to divide: its shape, its present layout, and the mesh axes over which it is repeated.

    most_padding: the most padding, as a share of the variable's elements; 0 where padding could not be left out.
    """

    shape: Shape
    layout: TensorLayout
    repeated: frozenset[str]
    most_padding: float = MOST_PADDING


def divided(variable: Divisible, mesh_shape: Shape, axis_parts: AxisParts) -> TensorLayout:
    """The variable's layout with the repeated axes added: each to one dimension, or its parts to several.

    An axis is left out if it divides no dimension, not even with some padding.
    """
    axes = variable.layout.axes
    for group in _repeated_axes(variable, mesh_shape, axis_parts):
        found = [
            (len(set(places)), padding, after)
            for places in itertools.product(range(variable.shape.ndims), repeat=len(group))
            for after in [_placed(axes, group, places)]
            for padding in [_padding(variable, after, mesh_shape)]
            if padding <= variable.most_padding
        ]
        if found:
            axes = min(found, key=lambda dims_padding_and_axes: dims_padding_and_axes[:2])[2]
    return TensorLayout(axes)


def parts_that_help(variables: Sequence[Divisible], mesh_shape: Shape) -> AxisParts:
    """Chooses the parts into which to take axes apart, so that as many elements of these variables as possible are
    divided. It may take no axis apart."""
    sizes: dict[str, tuple[int, int]] = {}
    for axis in mesh_shape.dims[: max(0, MOST_MESH_AXES - mesh_shape.ndims)]:
        if any(mesh_shape.has(part) for part in part_names(axis.name, 2)):
            continue
        waiting = Counter(v for v in variables if axis.name in v.repeated - divided(v, mesh_shape, WHOLE_AXES).used)
        gains = {pair: _elements_divided(waiting, axis, pair, mesh_shape) for pair in _pairs(axis.size)}
        best = max(gains, key=gains.__getitem__, default=None)
        if best is not None and gains[best]:
            sizes[axis.name] = best
    return AxisParts.of(mesh_shape, sizes)


def _elements_divided(
    variables: Mapping[Divisible, int], axis: Dimension, pair: tuple[int, int], mesh_shape: Shape
) -> int:
    """The number of elements in the variables that the axis divides if it is taken apart into these two parts."""
    axis_parts = AxisParts.of(mesh_shape, {axis.name: pair})
    finer = axis_parts.taken_apart(mesh_shape)
    total = 0
    for variable, count in variables.items():
        repeated = frozenset(axis_parts.axes_taken_apart(tuple(variable.repeated)))
        layout = axis_parts.layout_taken_apart(variable.layout)
        after = divided(dataclasses.replace(variable, layout=layout, repeated=repeated), finer, axis_parts)
        if set(axis_parts.axes_taken_apart((axis.name,))) <= after.used:
            total += count * variable.shape.size
    return total


def _pairs(size: int) -> Iterator[tuple[int, int]]:
    """Every pair of factors whose product is `size`, the most even pairs first."""
    for smaller in range(math.isqrt(size), 1, -1):
        if size % smaller == 0:
            yield from dict.fromkeys([(smaller, size // smaller), (size // smaller, smaller)])


def _repeated_axes(variable: Divisible, mesh_shape: Shape, axis_parts: AxisParts) -> Iterator[Axes]:
    """The repeated axes that do not split the variable yet, in the mesh's order. An axis that is taken apart gives its
    parts."""
    free = variable.repeated - variable.layout.used
    for axis in axis_parts.joined(mesh_shape).dimension_names:
        if group := tuple(part for part in axis_parts.axes_taken_apart((axis,)) if part in free):
            yield group


def _placed(axes: tuple[Axes, ...], added: Axes, places: Sequence[int]) -> tuple[Axes, ...]:
    """`axes` with each added axis appended to the axes of the dimension that `places` gives for it."""
    return tuple(
        (*own, *(axis for axis, place in zip(added, places, strict=True) if place == i)) for i, own in enumerate(axes)
    )


def _padding(variable: Divisible, axes: tuple[Axes, ...], mesh_shape: Shape) -> float:
    """The padding in a layout as a share of the elements; infinite if a dimension that was already split needs
    padding."""
    for dim, before, after in zip(variable.shape, variable.layout.axes, axes, strict=True):
        if before and dim.size % axes_size(after, mesh_shape):
            return math.inf
    return padded_shape(variable.shape, mesh_shape, TensorLayout(axes)).size / max(1, variable.shape.size) - 1
