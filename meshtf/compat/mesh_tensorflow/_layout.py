"""Layout rules as pairs, and tensor layouts as numbers of mesh axes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from meshtf import layout as language
from meshtf.dimension import DimensionLike, Shape, ShapeLike, shape_of
from meshtf.dimension.dimension import parse_pairs
from meshtf.errors import LayoutError, ShapeError
from meshtf.layout import LayoutLike


class LayoutRules(language.LayoutRules):
    """A `meshtf.LayoutRules` that also has the original's methods.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> rules = old.convert_to_layout_rules("d_ff:model;heads:model")
      >>> sorted(rules._pairs), rules.mesh_dimension_name_to_tensor_dimension_names("model")
      ([('d_ff', 'model'), ('heads', 'model')], ['d_ff', 'heads'])
    """

    __slots__ = ()

    def __init__(self, pairs: LayoutLike) -> None:
        listed: Any = pairs.items() if isinstance(pairs, Mapping) else pairs
        joined: dict[str, Any] = {}
        for name, axes in listed if isinstance(listed, Iterable) else [listed]:
            before: Any = joined.get(name)
            one_each = isinstance(before, str | tuple) and isinstance(axes, str | tuple)
            joined[name] = _joined(before, axes) if one_each else axes
        super().__init__(joined)

    @property
    def _pairs(self) -> set[tuple[str, str]]:
        return {(name, axis) for name, axes in self.rules for axis in axes}

    def tensor_dimension_to_mesh_axis(self, tensor_dimension: DimensionLike, mesh_shape: ShapeLike) -> int | None:
        """The number of the mesh axis that splits a dimension, or None if no axis splits it."""
        mesh, (dim,) = shape_of(mesh_shape), shape_of([tensor_dimension])
        return next((mesh.axis(a) for a in self.axes(dim.name) if mesh.has(a)), None)

    def mesh_dimension_name_to_tensor_dimension_names(self, mesh_dimension_name: str) -> list[str]:
        """The dimensions that a mesh axis splits."""
        return [name for name, axes in self.rules if mesh_dimension_name in axes]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, language.LayoutRules):
            return NotImplemented
        return (dict(self.rules), dict(self.places)) == (dict(other.rules), dict(other.places))

    def __hash__(self) -> int:
        return hash((self.rules, self.places))


class TensorLayout(language.TensorLayout):
    """The layout of a tensor: one mesh axis number, or None, for each dimension.

    Args:
      tensor_axis_to_mesh_axis: the number of the axis that splits each dimension, or None.
      axes: the names of the axes, where they are known.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> layout = old.TensorLayout([0, None, 1])
      >>> layout.tensor_axis_to_mesh_axis, layout.mesh_axis_to_tensor_axis(2), layout.is_fully_replicated
      ((0, None, 1), (0, 2), False)
    """

    __slots__ = ("tensor_axis_to_mesh_axis",)

    def __init__(self, tensor_axis_to_mesh_axis: Iterable[int | None], axes: Sequence[language.Axes] = ()) -> None:
        numbers = tuple(tensor_axis_to_mesh_axis)
        super().__init__(tuple(axes) or tuple(() if n is None else (str(n),) for n in numbers))
        object.__setattr__(self, "tensor_axis_to_mesh_axis", numbers)

    def mesh_axis_to_tensor_axis(self, mesh_ndims: int) -> tuple[int | None, ...]:
        """The number of the dimension that each of `mesh_ndims` mesh axes splits, or None."""
        numbers = self.tensor_axis_to_mesh_axis
        return tuple(numbers.index(i) if i in numbers else None for i in range(mesh_ndims))

    def __iter__(self) -> Iterator[int | None]:
        return iter(self.tensor_axis_to_mesh_axis)

    def __len__(self) -> int:
        return len(self.tensor_axis_to_mesh_axis)

    def __getitem__(self, key: Any) -> Any:
        return self.tensor_axis_to_mesh_axis[key]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, TensorLayout):
            return self.tensor_axis_to_mesh_axis == other.tensor_axis_to_mesh_axis
        return self.axes == other.axes if isinstance(other, language.TensorLayout) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.axes,))


def _joined(first: str | tuple[str, ...], second: str | tuple[str, ...]) -> tuple[str, ...]:
    """Joins the axes of two rules for one dimension. Such rules are for two meshes."""
    axes = [a for own in (first, second) for a in (own.split("+") if isinstance(own, str) else own)]
    return tuple(dict.fromkeys(axes))


def numbered(layout: language.TensorLayout, mesh_shape: Shape) -> TensorLayout:
    """A layout with the numbers of its axes. A dimension over several axes has the number of the first."""
    return TensorLayout([mesh_shape.axis(axes[0]) if axes else None for axes in layout.axes], layout.axes)


def convert_to_layout_rules(x: LayoutLike) -> LayoutRules:
    """Makes LayoutRules of rules, a mapping, pairs, or "batch:rows;hidden:cols"."""
    if isinstance(x, LayoutRules):
        return x
    if isinstance(x, str) and "{" not in x:
        try:
            return LayoutRules(parse_pairs(x, "[^:]+", "dimension:axis"))
        except ShapeError as error:
            raise LayoutError(f"bad layout, {error}") from None
    if isinstance(x, Iterable) and not isinstance(x, str):
        return LayoutRules(x)
    rules = language.convert_to_layout_rules(x)
    return LayoutRules([*rules.rules, *rules.places])


def rules_of_mesh(layout: LayoutLike, shape: Shape) -> LayoutRules:
    """The rules for axes that the mesh has. In Mesh TensorFlow one text of rules can serve several meshes.

    Raises:
      LayoutError: two rules are for one dimension, and the mesh has both axes.
    """
    rules = convert_to_layout_rules(layout)
    kept = [(name, tuple(a for a in axes if shape.has(a)), axes) for name, axes in rules.rules]
    for name, own, axes in kept:
        if len(own) > 1 and len(own) < len(axes):
            raise LayoutError(
                f'layout rules for dimension "{name}" name {" and ".join(own)}, which mesh [{shape}] has both; leave '
                f'one out, or write "{name}:{"+".join(own)}" for a dimension over both'
            )
    return LayoutRules({name: own for name, own, _ in kept if own})
