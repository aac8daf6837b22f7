"""Layouts: which dimension of a tensor is split over which axes of the mesh."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias, cast

from meshtf.call_sites import says_where
from meshtf.dimension import Dimension, Shape, parse_pairs
from meshtf.errors import LayoutError, ShapeError, nearest

_FORMS = 'a layout is text such as "batch:rows;hidden:pods+cols", or a dict such as {"batch": "rows"}'

Axes: TypeAlias = tuple[str, ...]
"""Mesh axes in order, the first one major: a dimension over ("pods", "rows") has `pods` outermost."""


@dataclasses.dataclass(frozen=True, slots=True)
class TensorLayout:
    """The mesh axes that split each dimension of a tensor (an empty tuple: not split).

    Examples:
      >>> layout = mtf.TensorLayout((("rows",), ()))
      >>> layout.to_string(x.shape), layout.slice_shape(x.shape, mtf.convert_to_shape("rows:2"))
      ('batch:4/rows hidden:8', (2, 8))
    """

    axes: tuple[Axes, ...]

    @property
    def is_fully_replicated(self) -> bool:
        return not any(self.axes)

    @property
    def used(self) -> frozenset[str]:
        """Every mesh axis that splits some dimension."""
        return frozenset(a for axes in self.axes for a in axes)

    def parts(self, mesh_shape: Shape) -> tuple[int, ...]:
        """In how many parts each dimension is cut."""
        return tuple(axes_size(axes, mesh_shape) for axes in self.axes)

    def slice_shape(self, shape: Shape, mesh_shape: Shape) -> tuple[int, ...]:
        """Sizes of one core's slice, rounded up where a dimension does not divide."""
        return tuple(-(-d.size // n) for d, n in zip(shape, self.parts(mesh_shape), strict=True))

    def to_string(self, shape: Shape) -> str:
        """As `batch:64/rows hidden:32`: each dimension, and the axes that split it."""
        return " ".join(f"{d}/{'+'.join(axes)}" if axes else str(d) for d, axes in zip(shape, self.axes, strict=True))


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class LayoutRules:
    """Maps names of dimensions to mesh axes: `LayoutRules({"batch": ("rows",), "hidden": ("cols",)})`.

    Examples:
      >>> rules = mtf.LayoutRules({"batch": "rows", "hidden": ("pods", "cols")})
      >>> str(rules)
      'batch:rows;hidden:pods+cols'
    """

    rules: tuple[tuple[str, Axes], ...]

    @says_where
    def __init__(self, rules: Mapping[str, Axes | str] | Iterable[tuple[str, Axes | str]]) -> None:
        merged: dict[str, Axes] = {}
        for name, axes in _pairs(rules):
            axes = tuple(axes.split("+")) if isinstance(axes, str) else tuple(axes)
            if merged.setdefault(name, axes) != axes:
                raise LayoutError(
                    f'two layout rules for dimension "{name}": {name}:{"+".join(merged[name])} and '
                    f'{name}:{"+".join(axes)}; for several axes write "{name}:{"+".join(merged[name] + axes)}"'
                )
            if len(set(axes)) != len(axes) or not all(axes):
                raise LayoutError(f'layout rule "{name}:{"+".join(axes)}" names an axis twice, or an empty one')
        object.__setattr__(self, "rules", tuple(merged.items()))

    def axes(self, name: str) -> Axes:
        """The mesh axes of a dimension, or an empty tuple."""
        return dict(self.rules).get(name, ())

    def rule_text(self, name: str) -> str:
        return f"{name}:{'+'.join(self.axes(name))}"

    def tensor_layout(self, shape: Shape, mesh_shape: Shape) -> TensorLayout:
        """The layout of a tensor under these rules, checked.

        Raises:
          LayoutError: a size is not divisible, or two dimensions stand on one mesh axis.
        """
        by_name = dict(self.rules)
        layout = TensorLayout(tuple(by_name.get(d.name, ()) for d in shape))
        check_tensor_layout(layout, shape, mesh_shape)
        return layout

    def __str__(self) -> str:
        return ";".join(f"{name}:{'+'.join(axes)}" for name, axes in self.rules)


def _pairs(rules: object) -> list[tuple[str, Axes | str]]:
    listed = list(rules.items() if isinstance(rules, Mapping) else rules) if isinstance(rules, Iterable) else [rules]
    for pair in listed:
        is_pair = isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
        axes = pair[1] if is_pair else None
        if not isinstance(axes, str) and not (isinstance(axes, list | tuple) and all(isinstance(a, str) for a in axes)):
            raise LayoutError(f"not a layout rule: {pair!r}; {_FORMS}")
    return cast("list[tuple[str, Axes | str]]", listed)


LayoutLike: TypeAlias = "LayoutRules | str | Mapping[str, Axes | str] | Iterable[tuple[str, Axes | str]]"


@says_where
def convert_to_layout_rules(x: LayoutLike) -> LayoutRules:
    """LayoutRules from themselves, a mapping, pairs, or "batch:rows;hidden:pods+cols".

    Examples:
      >>> mtf.convert_to_layout_rules("batch:rows;hidden:pods+cols")
      LayoutRules(rules=(('batch', ('rows',)), ('hidden', ('pods', 'cols'))))
    """
    if isinstance(x, LayoutRules):
        return x
    if x is None:
        raise LayoutError('a layout is needed; for one that splits nothing give ""')
    if isinstance(x, str):
        try:
            return LayoutRules(parse_pairs(x, r"[^:]+", "dimension:axis or dimension:axis+axis"))
        except ShapeError as error:
            raise LayoutError(f"bad layout, {error}") from None
    return LayoutRules(x)


def axes_size(axes: Iterable[str], mesh_shape: Shape) -> int:
    """Number of cores along these mesh axes."""
    sizes = {d.name: d.size for d in mesh_shape}
    return math.prod(sizes[a] for a in axes)


def restricted(layout: TensorLayout, shape: Shape, part: Shape) -> TensorLayout:
    """The layout of a tensor with some of the dimensions of `shape`, split as they are there."""
    return TensorLayout(tuple(layout.axes[shape.axis(d.name)] if shape.has(d.name) else () for d in part))


def without_split(layout: TensorLayout, shape: Shape, dim_name: str) -> TensorLayout:
    """The layout with one dimension whole on every core."""
    return TensorLayout(tuple(() if d.name == dim_name else a for d, a in zip(shape, layout.axes, strict=True)))


def check_tensor_layout(layout: TensorLayout, shape: Shape, mesh_shape: Shape) -> None:
    """Raises LayoutError unless every size divides and no mesh axis splits two dimensions."""
    holder: dict[str, Dimension] = {}
    for dim, axes in zip(shape, layout.axes, strict=True):
        for axis in axes:
            if axis in holder:
                raise LayoutError(
                    f'dimensions "{holder[axis].name}" and "{dim.name}" are both split over mesh axis "{axis}" '
                    f"in [{shape}] on mesh [{mesh_shape}]; leave one of them unsplit in this layout, "
                    f"or override this tensor's with mtf.with_layout or mtf.replicate"
                )
            holder[axis] = dim
        parts = axes_size(axes, mesh_shape)
        if dim.size % parts:
            raise LayoutError(
                f'dimension "{dim.name}" of size {dim.size} does not divide into {parts} parts '
                f'(rule "{dim.name}:{"+".join(axes)}", mesh [{mesh_shape}]); '
                f"{_legal(dim, parts, layout.used - set(axes), mesh_shape)}"
            )


def check_mesh_axes(rules: LayoutRules, mesh_shape: Shape) -> None:
    """Raises LayoutError where a rule names an axis that the mesh does not have."""
    for name, axes in rules.rules:
        for axis in axes:
            if not mesh_shape.has(axis):
                raise LayoutError(
                    f'layout rule "{name}:{"+".join(axes)}" names mesh axis "{axis}", which mesh [{mesh_shape}] '
                    f"does not have{nearest(axis, mesh_shape.dimension_names)}"
                )


def _legal(dim: Dimension, parts: int, taken: Collection[str], mesh_shape: Shape) -> str:
    """What may be done instead; `taken` are mesh axes that split other dimensions."""
    fitting = [a.name for a in mesh_shape if a.name not in taken and a.size > 1 and dim.size % a.size == 0]
    alternatives = [f'"{dim.name}:{a}" would divide' for a in fitting] or ["leave it unsplit"]
    larger = -(-dim.size // parts) * parts
    return f"{' and '.join(alternatives)}, or make the size a multiple of {parts} such as {larger}"
