"""Finds the layout rules that apply to a tensor: the program's, the activations', and the rules of its places.

For example, with layout "batch:rows;vocab:cols", activation layout "hidden:cols", and a place "logits{hidden:rows}":

    a weight [hidden vocab]             vocab over cols                       the program's rules
    an activation [batch hidden]        batch over rows, hidden over cols     and the activations'
    the same under the scope logits     hidden over rows, batch whole         the place's rule takes the axis

A place's rule overrides the others, and its axes split no other dimension there.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from meshtf.dimension import Shape
from meshtf.errors import LayoutError, nearest
from meshtf.graph.blocks import with_nested
from meshtf.graph.operation import Operation
from meshtf.layer_scopes import ScopedName
from meshtf.layout import Axes, LayoutRules

_ONE_OF_A_SCAN = """\
the layout rules for "{place}" are for some layers of "{label}" only, and its {count} layers are one scan, which has \
one layout for all of them; unroll the layers (unroll=True), or give the rules to "{label}_.*\""""


@dataclasses.dataclass(frozen=True)
class RuleSet:
    """Rules for every tensor of a program.

    Attributes:
      rules: `layout`.
      activations: `activation_layout`, for tensors with a dimension that no variable has. They replace `rules` for the
        same dimension, but take no axis that already splits another dimension of the tensor.
      parameter_dims: names of the dimensions that variables have.
    """

    rules: LayoutRules
    activations: LayoutRules = dataclasses.field(default_factory=lambda: LayoutRules(()))
    parameter_dims: frozenset[str] = frozenset()

    @classmethod
    def of_variables(
        cls, rules: LayoutRules, activations: LayoutRules | None, variables: Iterable[Operation]
    ) -> RuleSet:
        """The rules of a program with these variables."""
        names = frozenset(d.name for variable in variables for t in variable.outputs for d in t.shape)
        return cls(rules, activations or LayoutRules(()), names)

    @property
    def every(self) -> tuple[LayoutRules, ...]:
        return (self.rules, self.activations)

    @property
    def has_places(self) -> bool:
        return any(rules.places for rules in self.every)

    def is_activation(self, shape: Shape) -> bool:
        return any(d.name not in self.parameter_dims for d in shape)

    def map_axes(self, fn: Callable[[Axes], Axes]) -> RuleSet:
        """The same rules with other axes."""
        return dataclasses.replace(self, rules=self.rules.map_axes(fn), activations=self.activations.map_axes(fn))

    def with_rules(self, rules: LayoutRules) -> RuleSet:
        """The rule set of variables that have layout rules of their own."""
        return RuleSet(rules, parameter_dims=self.parameter_dims)

    def axes(
        self, shape: Shape, places: Sequence[tuple[str, ...]], fixed: Mapping[str, Axes] | None = None
    ) -> dict[str, Axes]:
        """The axes that split each dimension of a tensor, keyed by the dimension's name.

        Args:
          shape: the tensor's shape.
          places: the places of `rules` that contain the tensor, and then the places of `activations`.
          fixed: the axes of dimensions whose layout is already decided.
        """
        fixed = fixed or {}
        is_activation = self.is_activation(shape)
        axes = {**dict.fromkeys(shape.dimension_names, ()), **_of(self.rules, shape), **fixed}
        # An activation rule replaces the layout's rule for its dimension, but takes no axis from another dimension.
        if is_activation:
            own = {name: given for name, given in _of(self.activations, shape).items() if name not in fixed}
            taken = {a for name, given in axes.items() if name not in own for a in given}
            axes |= {name: tuple(a for a in given if a not in taken) for name, given in own.items()}
        for rules, names in zip(self.every if is_activation else self.every[:1], places, strict=False):
            for place, there in rules.places:
                if place in names:
                    axes = _overlaid(axes, {n: a for n, a in _of(there, shape).items() if n not in fixed}, fixed)
        return axes


def _of(rules: LayoutRules, shape: Shape) -> dict[str, Axes]:
    return {name: axes for name, axes in rules.rules if shape.has(name)}


def _overlaid(axes: Mapping[str, Axes], own: Mapping[str, Axes], fixed: Mapping[str, Axes]) -> dict[str, Axes]:
    """`axes` overlaid by the axes `own` of a place. These no longer split other dimensions."""
    taken = {a for given in own.values() for a in given}
    left = {n: a if n in fixed else tuple(axis for axis in a if axis not in taken) for n, a in axes.items()}
    return {**left, **own}


def places_of(rules: LayoutRules, scoped_name: ScopedName) -> tuple[str, ...]:
    """The places of the rules that contain an operation.

    Raises:
      LayoutError: a place contains some layers of a scan, but not all.
    """
    found = []
    for place, _ in rules.places:
        names = scoped_name.names
        inside = [name for name in names if _is_in(place, name)]
        if inside and len(inside) < len(names):
            label = next(scope.label for scope in scoped_name.layer_scopes if scope.is_stacked)
            raise LayoutError(_ONE_OF_A_SCAN.format(place=place, label=label, count=len(names)))
        if inside:
            found.append(place)
    return tuple(found)


def _is_in(place: str, name: str) -> bool:
    """Whether the place matches the name or one of the scopes around it."""
    pattern = re.compile(place)
    ends = [m.start() for m in re.finditer("/", name)]
    return any(pattern.fullmatch(name, 0, end) for end in [*ends, len(name)])


def unused_rules(rules: LayoutRules, operations: Iterable[Operation], kind: str = "layout rule") -> list[str]:
    """A message for each rule whose dimension, or whose place, does not occur in the program."""
    listed = list(with_nested(operations))
    names = {d.name for operation in listed for t in operation.outputs for d in t.shape}
    messages = [
        f'{kind} "{rules.rule_text(name)}" has no effect: the program has no dimension "{name}"{nearest(name, names)}'
        for name, _ in rules.rules
        if name not in names
    ]
    for place, own in rules.places:
        there = [o for o in listed if any(_is_in(place, name) for name in o.scoped_name.names)]
        if not there:
            messages.append(f'{kind} "{place}{{{own}}}" has no effect: {_no_such_place(place, listed)}')
            continue
        names = {d.name for operation in there for t in operation.outputs for d in t.shape}
        messages += [
            f'{kind} "{place}{{{own.rule_text(name)}}}" has no effect: nothing there has a dimension "{name}"'
            f"{nearest(name, names)}"
            for name, _ in own.rules
            if name not in names
        ]
    return messages


def _no_such_place(place: str, operations: Iterable[Operation]) -> str:
    names = {name for operation in operations for name in operation.scoped_name.names}
    scopes = {name[:end] for name in names for end in range(len(name)) if name[end] == "/"}
    outermost = sorted({name.partition("/")[0] for name in scopes})
    known = nearest(place, [*scopes, *names]) or f"; its outermost scopes are {', '.join(outermost) or 'none'}"
    return f'no scope and no name of the program matches "{place}"{known}'
