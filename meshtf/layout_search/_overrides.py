"""Overrides by place: rules for one scope, operation or variable for which the rules for all tensors are slow.

The best layout that a search has found is the same for all tensors of a name. In the places that take most of its time,
separate rules are tried: one place and one axis of the mesh at a time, with sets of names that the axis can split
there. A rule that fits and gains enough is kept, and the next rules are tried on top of it.

For example, a search finds "batch:data;d_ff:model", and a third of the time goes to the place "logits". There
"vocab:model" is tried as a separate rule. If it saves a hundredth of the step or more, the layout becomes
"batch:data;d_ff:model;logits{vocab:model}".
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
"""The most layouts that are priced for overrides on one mesh."""

_MOST_PLACES = 8
"""The most places that are tried, beginning with the one in which most time is spent."""

_MOST_SETS = 6
"""The most sets of names that are tried for one axis of one place."""

_LEAST_SHARE = 0.03
"""The least share of a step's time that a place must take to be tried."""

_LEAST_GAIN = 0.01
"""The least share of a step's time that one more rule must save."""

_ANY_NUMBER = "_[0-9]+"

_WRITABLE = re.compile(r"[\w./-]+")


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """pattern: the place, as layout rules have it. operations: the operations there."""

    pattern: str
    operations: tuple[Operation, ...]


class Overrides:
    """The overrides of one program on one mesh.

    Args:
      pricing: prices layouts of the program.
      graph: the graph of the program.
      choices: the choices of its layouts on the mesh.
      kept: rules that every layout has, in every place.
      price: returns the price of a layout, or None if the program cannot have it.
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
        """Returns the layout with the overrides that pay, or the layout itself if none does.

        Args:
          best: a layout that fits.
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
        """Returns the places that take most time.

        A place that takes all of the time is left out. If several have the same operations, the outermost is taken.
        """
        report, prediction = self._pricing.predicted(layout)
        seconds: dict[Operation, float] = {}
        for number, record in enumerate(report.operations):
            operation = self._operations.get(record.name)
            if operation is not None and record.category not in ("loop", "branch"):
                seconds[operation] = seconds.get(operation, 0.0) + prediction.operations[number].exposed_seconds
        # Places come outermost first, so a scope wins over the scopes inside that hold the same operations.
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
        """All scopes, operations and variables, outer ones first. The layers of a stack are one place."""
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
        """Yields layouts with other names of the place on one axis."""
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
        """Returns the layout in which the place has these rules, as far as they differ from the rules for all
        tensors.
        """
        everywhere = layout.layout
        own = {name: axes for name, axes in rules.items() if axes != everywhere.axes(name)}
        places = {place: there for place, there in everywhere.places if place != pattern}
        places |= {pattern: LayoutRules(own)} if own else {}
        return dataclasses.replace(layout, layout=LayoutRules([*everywhere.rules, *places.items()]))


def _in_every_layer(operation: Operation) -> str:
    """The operation's place as a pattern, in which layer numbers match any number."""
    name = operation.scoped_name.name
    for scope in reversed(scopes_of(name, operation.scoped_name.layer_scopes)):
        name = scope.label + _ANY_NUMBER + name.removeprefix(scope.path)
    return name
