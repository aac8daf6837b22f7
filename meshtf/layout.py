"""Layouts: which dimension of a tensor is split over which axes of the mesh.

A layout rule maps a dimension's name to mesh axes. On a mesh "rows:2 cols:4", the rules "batch:rows;hidden:cols" give

    x [batch:4 hidden:8]     TensorLayout((("rows",), ("cols",)))     a slice of [2, 2] on each core
    w [hidden:8 vocab:16]    TensorLayout((("cols",), ()))            a slice of [2, 16]; both rows hold a copy
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeAlias, cast

from meshtf.call_sites import says_where
from meshtf.dimension import Dimension, Shape
from meshtf.dimension.dimension import parse_pairs
from meshtf.errors import LayoutError, ShapeError, nearest
from meshtf.markup import Markup, block, folded, grid

_FORMS = 'a layout is text such as "batch:rows;hidden:pods+cols", or a dict such as {"batch": "rows"}'

_PLACE = re.compile(r"([^{};]*)\{([^{}]*)\}")

MAX_PADDING = 1 / 3
"""The largest share of padding that a layout may add along a dimension whose size its axes do not divide."""

Axes: TypeAlias = tuple[str, ...]
"""Mesh axes in order, the first one major: a dimension over ("pods", "rows") has `pods` outermost."""


@dataclasses.dataclass(frozen=True, slots=True)
class TensorLayout:
    """The mesh axes that split each dimension of a tensor. An empty tuple means that the dimension is whole.

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
        """The mesh axes that split a dimension."""
        return frozenset(a for axes in self.axes for a in axes)

    def parts(self, mesh_shape: Shape) -> tuple[int, ...]:
        """The number of parts into which each dimension is cut."""
        return tuple(axes_size(axes, mesh_shape) if axes else 1 for axes in self.axes)

    def slice_shape(self, shape: Shape, mesh_shape: Shape) -> tuple[int, ...]:
        """The sizes of one core's slice, rounded up where a dimension does not divide evenly."""
        return tuple(-(-d.size // n) for d, n in zip(shape, self.parts(mesh_shape), strict=True))

    def _repr_html_(self) -> str:
        rows = [(f"{i}", "+".join(axes) or "(whole)") for i, axes in enumerate(self.axes)]
        return block(grid(("dimension number", "split over mesh axes"), rows, (True,)))

    def to_string(self, shape: Shape) -> str:
        """Each dimension with the axes that split it, as in `batch:64/rows hidden:32`."""
        return " ".join(f"{d}/{'+'.join(axes)}" if axes else str(d) for d, axes in zip(shape, self.axes, strict=True))


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class LayoutRules:
    """Maps names of dimensions to mesh axes: `LayoutRules({"batch": ("rows",), "hidden": ("cols",)})`.

    Rules may apply to one place of the program: `{"batch": "rows", "encoder/.*": {"hidden": "cols"}}`, or as text
    "batch:rows;encoder/.*{hidden:cols}". A place is a regular expression that matches the whole name of a scope, of an
    operation or of a variable. Its rules apply to everything there, and override outer rules for the same dimensions.
    If several places match, the last one counts. An axis that such a rule uses no longer splits another dimension of
    the tensor. A rule without an axis, "encoder/.*{hidden:}", leaves the dimension whole.

    Attributes:
      rules: the rules for the whole program.
      places: the rules of each place.

    Examples:
      >>> rules = mtf.LayoutRules({"batch": "rows", "hidden": ("pods", "cols")})
      >>> str(rules)
      'batch:rows;hidden:pods+cols'
      >>> str(mtf.LayoutRules({"batch": "rows", "encoder": {"hidden": "cols"}}))
      'batch:rows;encoder{hidden:cols}'
    """

    rules: tuple[tuple[str, Axes], ...]
    places: tuple[tuple[str, LayoutRules], ...]

    @says_where
    def __init__(self, rules: Mapping[str, RuleLike] | Iterable[tuple[str, RuleLike]]) -> None:
        merged: dict[str, Axes] = {}
        places: dict[str, LayoutRules] = {}
        for name, own in _pairs(rules):
            if isinstance(own, LayoutRules | Mapping):
                places[_checked_place(name, places)] = _rules_of_place(name, own)
                continue
            axes = tuple(own.split("+") if own else ()) if isinstance(own, str) else tuple(own)
            if merged.setdefault(name, axes) != axes:
                raise LayoutError(
                    f'two layout rules for dimension "{name}": {name}:{"+".join(merged[name])} and '
                    f'{name}:{"+".join(axes)}; for several axes write "{name}:{"+".join(merged[name] + axes)}"'
                )
            if len(set(axes)) != len(axes) or not all(axes):
                raise LayoutError(f'layout rule "{name}:{"+".join(axes)}" names an axis twice, or an empty one')
        object.__setattr__(self, "rules", tuple(merged.items()))
        object.__setattr__(self, "places", tuple(places.items()))

    def axes(self, name: str) -> Axes:
        """The mesh axes of a dimension, or an empty tuple."""
        return dict(self.rules).get(name, ())

    def rule_text(self, name: str) -> str:
        return f"{name}:{'+'.join(self.axes(name))}"

    def tensor_layout(self, shape: Shape, mesh_shape: Shape, max_padding: float = MAX_PADDING) -> TensorLayout:
        """The layout of a tensor under the rules for the whole program, checked.

        Raises:
          LayoutError: the share of padding exceeds `max_padding`, or one mesh axis splits two dimensions.
        """
        by_name = dict(self.rules)
        layout = TensorLayout(tuple(by_name.get(d.name, ()) for d in shape))
        check_tensor_layout(layout, shape, mesh_shape, max_padding)
        return layout

    def map_axes(self, fn: Callable[[Axes], Axes]) -> LayoutRules:
        """The rules with `fn` applied to the axes of each."""
        own = [(name, fn(axes)) for name, axes in self.rules]
        return LayoutRules([*own, *((place, rules.map_axes(fn)) for place, rules in self.places)])

    def _repr_html_(self) -> str:
        return block(
            *([self._table()] if self.rules or not self.places else []),
            *(folded(f"at {place}", rules._table(), is_open=True) for place, rules in self.places),
        )

    def _table(self) -> Markup:
        rows = [(name, "+".join(axes) or "(whole)") for name, axes in self.rules]
        return grid(("dimension", "split over mesh axes"), rows or ["nothing is split"])

    def __str__(self) -> str:
        own = [f"{name}:{'+'.join(axes)}" for name, axes in self.rules]
        return ";".join([*own, *(f"{place}{{{rules}}}" for place, rules in self.places)])


RuleLike: TypeAlias = "Axes | str | LayoutRules | Mapping[str, Axes | str]"
"""The axes of a dimension, or the rules of a place."""

LayoutLike: TypeAlias = "LayoutRules | str | Mapping[str, RuleLike] | Iterable[tuple[str, RuleLike]]"


def _pairs(rules: object) -> list[tuple[str, RuleLike]]:
    listed = list(rules.items() if isinstance(rules, Mapping) else rules) if isinstance(rules, Iterable) else [rules]
    for pair in listed:
        name, axes = pair if isinstance(pair, list | tuple) and len(pair) == 2 else (None, None)
        are_axes = isinstance(axes, list | tuple) and all(isinstance(a, str) for a in axes)
        if not isinstance(name, str) or not (isinstance(axes, str | LayoutRules | Mapping) or are_axes):
            raise LayoutError(f"not a layout rule: {pair!r}; {_FORMS}")
    return cast("list[tuple[str, RuleLike]]", listed)


def _checked_place(place: str, known: Collection[str]) -> str:
    """The place, if it is valid.

    Raises:
      LayoutError: it is not a regular expression, cannot be written as text, or occurs twice.
    """
    if place in known:
        raise LayoutError(f'two groups of layout rules for "{place}"; write them as one')
    if not place or set(place) & set("{};") or place != place.strip():
        raise LayoutError(
            f'"{place}" cannot be the place of layout rules: give the name of a scope, such as "encoder", or a regular '
            f'expression for names, such as "encoder/.*", without braces, semicolons and spaces around it'
        )
    try:
        re.compile(place)
    except re.error as error:
        raise LayoutError(f'the place "{place}" of layout rules is no regular expression: {error}') from None
    return place


def _rules_of_place(place: str, rules: LayoutRules | Mapping[str, Axes | str]) -> LayoutRules:
    own = convert_to_layout_rules(rules)
    if own.places:
        raise LayoutError(
            f'the layout rules of "{place}" have a place inside, "{own.places[0][0]}"; write it by itself'
        )
    return own


@says_where
def convert_to_layout_rules(x: LayoutLike) -> LayoutRules:
    """Converts to LayoutRules: from LayoutRules, a mapping, pairs, or text such as "batch:rows;hidden:pods+cols".

    Examples:
      >>> mtf.convert_to_layout_rules("batch:rows;hidden:pods+cols").rules
      (('batch', ('rows',)), ('hidden', ('pods', 'cols')))
      >>> mtf.convert_to_layout_rules("batch:rows;encoder/.*{hidden:cols}").places[0][1].rules
      (('hidden', ('cols',)),)
    """
    if isinstance(x, LayoutRules):
        return x
    if x is None:
        raise LayoutError('a layout is needed; for one that splits nothing give ""')
    if isinstance(x, str):
        try:
            return LayoutRules(_parsed(x))
        except ShapeError as error:
            raise LayoutError(f"bad layout, {error}") from None
    return LayoutRules(x)


def _parsed(text: str) -> list[tuple[str, RuleLike]]:
    """The rules of a text; the rules of places come last."""
    form = "dimension:axis or dimension:axis+axis"
    outside = _PLACE.sub(lambda match: " " * len(match[0]), text)
    if set(outside) & set("{}"):
        raise LayoutError(f'braces do not match in layout "{text}"; the rules of a place are place{{dimension:axis}}')
    own: list[tuple[str, RuleLike]] = []
    own += parse_pairs(outside, "[^:]+", form, shown=text)
    for match in _PLACE.finditer(text):
        inside = " " * match.start(2) + match[2]
        own.append((match[1].strip(), LayoutRules(parse_pairs(inside, "[^:]*", form, shown=text))))
    return own


def axes_size(axes: Iterable[str], mesh_shape: Shape) -> int:
    """Number of cores along these mesh axes."""
    if not axes:
        return 1
    sizes = {d.name: d.size for d in mesh_shape.dims}
    return math.prod(sizes[a] for a in axes)


def padding_share(size: int, parts: int) -> float:
    """The share of padding when a dimension is split into this many parts. For size 3 in 2 parts it is 1/4."""
    padded = -(-size // parts) * parts
    return (padded - size) / padded if size else 0.0


def restricted(layout: TensorLayout, shape: Shape, part: Shape) -> TensorLayout:
    """The layout of a tensor of shape `part`: each dimension is split as in `shape`, or whole if `shape` lacks it."""
    return TensorLayout(tuple(layout.axes[shape.axis(d.name)] if shape.has(d.name) else () for d in part))


def without_split(layout: TensorLayout, shape: Shape, dim_name: str) -> TensorLayout:
    """The layout with one dimension whole on every core."""
    return TensorLayout(tuple(() if d.name == dim_name else a for d, a in zip(shape, layout.axes, strict=True)))


def check_tensor_layout(
    layout: TensorLayout, shape: Shape, mesh_shape: Shape, max_padding: float = MAX_PADDING
) -> None:
    """Checks that sizes divide, and that no mesh axis splits two dimensions.

    Raises:
      LayoutError: the share of padding exceeds `max_padding`, or a mesh axis splits two dimensions.
    """
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
        if (share := padding_share(dim.size, parts)) > max_padding:
            raise LayoutError(
                f'dimension "{dim.name}" of size {dim.size} does not divide into {parts} parts '
                f'(rule "{dim.name}:{"+".join(axes)}", mesh [{mesh_shape}]): {share:.0%} of what cores '
                f"hold would be padding, more than {max_padding:.0%}; "
                f"{_legal(dim, parts, layout.used - set(axes), mesh_shape)}, or allow more with max_padding of "
                f"mtf.MeshOptions"
            )


def check_mesh_axes(rules: LayoutRules, mesh_shape: Shape) -> None:
    """Checks that the mesh has every axis that a rule names.

    Raises:
      LayoutError: the mesh lacks an axis.
    """
    for name, axes in [*rules.rules, *(rule for _, own in rules.places for rule in own.rules)]:
        for axis in axes:
            if not mesh_shape.has(axis):
                raise LayoutError(
                    f'layout rule "{name}:{"+".join(axes)}" names mesh axis "{axis}", which mesh [{mesh_shape}] '
                    f"does not have{_parts_hint(axis, mesh_shape) or nearest(axis, mesh_shape.dimension_names)}"
                )


def _parts_hint(axis: str, mesh_shape: Shape) -> str:
    whole = axis.rpartition(".")[0]
    is_apart = any(name.startswith(f"{whole}.") for name in mesh_shape.dimension_names)
    is_wanted = mesh_shape.has(whole) and not is_apart
    return f'; for parts of {whole} give axis_parts, such as "{whole}:2x4"' if is_wanted else ""


def _legal(dim: Dimension, parts: int, taken: Collection[str], mesh_shape: Shape) -> str:
    """Advice on what the user can do instead. `taken`: mesh axes that split other dimensions."""
    fitting = [a.name for a in mesh_shape if a.name not in taken and a.size > 1 and dim.size % a.size == 0]
    alternatives = [f'"{dim.name}:{a}" would divide' for a in fitting] or ["leave it unsplit"]
    larger = -(-dim.size // parts) * parts
    return f"{' and '.join(alternatives)}, or make the size a multiple of {parts} such as {larger}"
