"""Mesh axes that a program divides into parts, so that the parts of one axis can split different dimensions.

512 cores along one axis divide no dimension of [d_model:768 d_ff:768], but 16 of them divide one and 32 the other.
With parts, "data:512" becomes "data.0:16;data.1:32". Cores keep their numbers. A dimension split over the whole axis
is then split over both parts.

The planner divides axes for weight updates by itself. Users do it with `axis_parts="data:16x32"`, and can then name
the parts in layouts. Reports show the parts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from meshtf.call_sites import says_where
from meshtf.dimension import Dimension, Shape
from meshtf.dimension.dimension import parse_pairs
from meshtf.errors import LayoutError, ShapeError, nearest
from meshtf.layout import Axes, TensorLayout

SizesOfParts: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The sizes of an axis's parts, after the name of the mesh axis."""


@dataclasses.dataclass(frozen=True, slots=True)
class AxisParts:
    """The parts of each axis that is divided; the first part is major. By default no axis is divided."""

    parts: tuple[tuple[Dimension, tuple[Dimension, ...]], ...] = ()

    @classmethod
    def of(cls, mesh_shape: Shape, sizes: Mapping[str, Sequence[int]]) -> AxisParts:
        """Makes the parts from their sizes, keyed by the name of the mesh axis."""
        parts = []
        for name, own in sizes.items():
            names = part_names(name, len(own))
            parts.append((mesh_shape.get_dim_by_name(name), tuple(map(Dimension, names, own))))
        return cls(tuple(parts))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def taken_apart(self, mesh_shape: Shape) -> Shape:
        """The mesh shape in which each divided axis is replaced by its parts."""
        parts = dict(self.parts)
        return Shape([part for axis in mesh_shape for part in parts.get(axis, (axis,))])

    def named(self, mesh_shape: Shape) -> Shape:
        """All axes that a rule may name: the axes of the whole mesh, and their parts."""
        return Shape([*mesh_shape, *(part for _, own in self.parts for part in own)])

    def joined(self, mesh_shape: Shape) -> Shape:
        """The mesh shape before its axes were divided."""
        axes = {parts[0]: axis for axis, parts in self.parts}
        others = {part for _, parts in self.parts for part in parts[1:]}
        return Shape([axes.get(part, part) for part in mesh_shape if part not in others])

    def axes_taken_apart(self, axes: Axes) -> Axes:
        parts = {axis.name: tuple(p.name for p in own) for axis, own in self.parts}
        return tuple(part for axis in axes for part in parts.get(axis, (axis,)))

    def axes_joined(self, axes: Axes) -> Axes:
        """The axes, where consecutive parts that make up a whole axis are replaced by its name.

        Other parts keep their names.
        """
        for axis, own in self.parts:
            names = tuple(part.name for part in own)
            for start in range(len(axes) - len(names) + 1):
                if axes[start : start + len(names)] == names:
                    axes = (*axes[:start], axis.name, *axes[start + len(names) :])
                    break
        return axes

    def layout_taken_apart(self, layout: TensorLayout) -> TensorLayout:
        return TensorLayout(tuple(map(self.axes_taken_apart, layout.axes)))

    def layout_joined(self, layout: TensorLayout) -> TensorLayout:
        return TensorLayout(tuple(map(self.axes_joined, layout.axes)))

    def __str__(self) -> str:
        """Text such as `data:512 in data.0:16 and data.1:32`."""
        return "; ".join(f"{axis} in {' and '.join(map(str, parts))}" for axis, parts in self.parts)


@says_where
def sizes_of_parts(x: str | Mapping[str, Sequence[int]] | SizesOfParts) -> SizesOfParts:
    """The sizes of parts from text such as "data:16x32;model:2x4", from a mapping, or from pairs of names and sizes.

    Raises:
      LayoutError: the text or value is malformed, an axis has fewer than two parts, or a size is not positive.
    """
    form = "axis:sizexsize"
    try:
        pairs = parse_pairs(x, r"\d{1,9}(?:x\d{1,9})+", form) if isinstance(x, str) else dict(x).items()
        found = [
            (name, tuple(map(int, sizes.split("x"))) if isinstance(sizes, str) else tuple(sizes))
            for name, sizes in pairs
        ]
    except (ShapeError, TypeError, ValueError) as error:
        raise LayoutError(f'axis_parts: {error}; write "data:16x32", or {{"data": (16, 32)}}') from None
    for name, own in found:
        if len(own) < 2 or not all(isinstance(n, int) and n > 0 for n in own):
            raise LayoutError(
                f'axis_parts: mesh axis "{name}" is to be taken apart into {own}; give two positive sizes or more'
            )
    return tuple(found)


def axis_parts_of(mesh_shape: Shape, sizes: SizesOfParts) -> AxisParts:
    """Checks a user's sizes of parts against the mesh, and makes the parts.

    Raises:
      LayoutError: the mesh lacks the axis, its size is not the product of the parts', or a part's name is taken.
    """
    for name, own in sizes:
        if not mesh_shape.has(name):
            known = nearest(name, mesh_shape.dimension_names)
            raise LayoutError(f'axis_parts names mesh axis "{name}", which mesh [{mesh_shape}] does not have{known}')
        if mesh_shape.get_dim_by_name(name).size != math.prod(own):
            raise LayoutError(
                f"axis_parts has {'x'.join(map(str, own))} = {math.prod(own)} cores along {name}, "
                f"and mesh [{mesh_shape}] has {mesh_shape.get_dim_by_name(name).size}"
            )
        for part in part_names(name, len(own)):
            if mesh_shape.has(part):
                raise LayoutError(f'a part of mesh axis "{name}" is called "{part}", as another axis of [{mesh_shape}]')
    return AxisParts.of(mesh_shape, dict(sizes))


def part_names(axis: str, count: int) -> tuple[str, ...]:
    """The names of the `count` parts of a mesh axis: `data.0`, `data.1`."""
    return tuple(f"{axis}.{i}" for i in range(count))


WHOLE_AXES = AxisParts()
"""The parts when no axis is divided."""
