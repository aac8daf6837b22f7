"""Overrides by place: rules for a scope, an operation or a variable, where the rules for all do badly.

The best layout that a search has found is the same for all tensors of a name. Where most of its time goes, rules of
their own are tried: of one place at a time, one axis of the mesh at a time, all sets of names that the axis can split
there. What gains enough and fits is kept, and the rest is tried beside it.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping

from meshtf.graph.blocks import with_nested
from meshtf.graph.graph import Graph
from meshtf.graph.operation import Operation
from meshtf.layer_scopes import scopes_of
from meshtf.layout import LayoutRules
from meshtf.layout_search._choices import NO_NAMES, Choices, NamesOfShapes, SetsByAxis
from meshtf.layout_search._pricing import MeshLayout, PricedLayout, Pricing

_MOST_PLANS = 96
"""That are priced for overrides, of one mesh."""

_MOST_PLACES = 8
"""That are tried: those in which most time is spent."""

_MOST_SETS = 6
"""Of names, for one axis of one place."""

_LEAST_SHARE = 0.03
"""Of a step's time: what is spent in a place at least."""

_LEAST_GAIN = 0.01
"""Of a step's time: a layout that gains less is not worth a rule more."""

_ANY_NUMBER = "_[0-9]+"

_WRITABLE = re.compile(r"[\w./-]+")


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """pattern: as layout rules have it. operations: that are there."""

    pattern: str
    operations: tuple[Operation, ...]


class Overrides:
    """Of one program, on one mesh.

    Args:
      pricing: of the program.
      graph: of the program.
      choices: of its layouts on the mesh.
      kept: rules that every layout has: they hold in every place.
      price: gives what a layout costs, and None of one that the program cannot have.
    """

    def __init__(
        self,
        pricing: Pricing,
        graph: Graph,
        choices: Choices,
        kept: LayoutRules,
        price: Callable[[MeshLayout], PricedLayout | None],
    ) -> None:
        self._pricing, self._choices, self._price = pricing, choices, price
        self._kept = frozenset(name for rules in (kept, *(own for _, own in kept.places)) for name, _ in rules.rules)
        self._operations = {o.name: o for o in with_nested(graph.operations)}

    def improved(self, best: PricedLayout, memory: float) -> PricedLayout:
        """The layout with the overrides that pay; itself where none does.

        Args:
          best: fits.
          memory: bytes that a core has.
        """
        most = self._pricing.count + _MOST_PLANS
        for place in self._costly_places(best.choice):
            names = self._names(place)
            for axis in range(len(self._choices.mesh_shape)):
                if self._pricing.count >= most:
                    return best
                tried = map(self._price, self._others(best.choice, place.pattern, names, axis))
                fitting = (priced for priced in tried if priced is not None and priced.peak_bytes <= memory)
                found = min(fitting, key=lambda priced: priced.seconds, default=best)
                if found.seconds <= (1 - _LEAST_GAIN) * best.seconds:
                    best = found
        return best

    def _costly_places(self, layout: MeshLayout) -> list[_Place]:
        """Where most time is spent, but no place that has all of it, and of places that have the same the outermost."""
        report, prediction = self._pricing.predicted(layout)
        seconds: dict[Operation, float] = {}
        for number, record in enumerate(report.operations):
            operation = self._operations.get(record.name)
            if operation is not None and record.category not in ("loop", "branch"):
                seconds[operation] = seconds.get(operation, 0.0) + prediction.operations[number].exposed_seconds
        spent: dict[tuple[Operation, ...], str] = {}
        for place in self._places:
            there = tuple(o for o in place.operations if o in seconds)
            if there and len(there) < len(seconds):
                spent.setdefault(there, place.pattern)
        total = {there: sum(seconds[o] for o in there) for there in spent}
        costly = [there for there in spent if total[there] >= _LEAST_SHARE * prediction.seconds]
        costly.sort(key=lambda there: -total[there])
        by_pattern = {place.pattern: place for place in self._places}
        return [by_pattern[spent[there]] for there in costly[:_MOST_PLACES]]

    @functools.cached_property
    def _places(self) -> list[_Place]:
        """All scopes, operations and variables, those further out first; layers of a stack are one place."""
        found: dict[str, list[Operation]] = {}
        for operation in self._operations.values():
            name = _in_every_layer(operation)
            for end in [m.start() for m in re.finditer("/", name)] + [len(name)]:
                found.setdefault(name[:end], []).append(operation)
        ordered = sorted(found, key=lambda pattern: (pattern.count("/"), pattern))
        return [_Place(p, tuple(found[p])) for p in ordered if _WRITABLE.fullmatch(p.replace(_ANY_NUMBER, ""))]

    def _names(self, place: _Place) -> NamesOfShapes:
        shapes = [self._choices.splittable(t.shape) for o in place.operations for t in o.outputs]
        return NamesOfShapes(shapes, self._choices.mesh_shape)

    def _others(self, layout: MeshLayout, pattern: str, names: NamesOfShapes, axis: int) -> Iterator[MeshLayout]:
        """With other names of the place on one axis."""
        rules = dict(layout.layout.rules) | dict(dict(layout.layout.places).get(pattern, LayoutRules(())).rules)
        now = tuple(
            frozenset(name for name in names.names if own.name in rules.get(name, ()))
            for own in self._choices.mesh_shape
        )
        for own in [NO_NAMES, *names.largest_sets(axis)[:_MOST_SETS]]:
            sets = names.thinned((*now[:axis], own | (now[axis] & self._kept), *now[axis + 1 :]))
            if (
                sets != now
                and names.fits(sets)
                and not any((a ^ b) & self._kept for a, b in zip(sets, now, strict=True))
            ):
                yield self._with_place(layout, pattern, self._rules(names, sets))

    def _rules(self, names: NamesOfShapes, sets: SetsByAxis) -> dict[str, tuple[str, ...]]:
        mesh = self._choices.mesh_shape
        return {n: tuple(a.name for a, own in zip(mesh, sets, strict=True) if n in own) for n in names.names}

    def _with_place(self, layout: MeshLayout, pattern: str, rules: Mapping[str, tuple[str, ...]]) -> MeshLayout:
        """Its rules in the place are these, as far as they differ from those for all."""
        everywhere = layout.layout
        own = {name: axes for name, axes in rules.items() if axes != everywhere.axes(name)}
        places = {place: there for place, there in everywhere.places if place != pattern}
        places |= {pattern: LayoutRules(own)} if own else {}
        return dataclasses.replace(layout, layout=LayoutRules([*everywhere.rules, *places.items()]))


def _in_every_layer(operation: Operation) -> str:
    """Where it is, as a pattern: with any number in place of a layer's."""
    name = operation.scoped_name.name
    for scope in reversed(scopes_of(name, operation.scoped_name.layer_scopes)):
        name = scope.label + _ANY_NUMBER + name.removeprefix(scope.path)
    return name
