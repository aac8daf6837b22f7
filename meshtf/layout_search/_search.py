"""The search: every layout where there are few, and where there are many, a descent from the most promising ones.

A rough estimate, made of the program's products alone, orders the sets of names that axes can split. The best of these
are priced; from the quickest that fit, a descent changes one axis of one table at a time, to whatever is best there,
until no such change helps. Prices are those of whole plans, so that nothing is left out of them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Iterator

from meshtf.layout_search._choices import MOST_LAYOUTS, NO_NAMES, Choice, Choices, Names, NamesOfShapes, SetsByAxis
from meshtf.layout_search._pricing import MeshLayout, PricedLayout, Pricing
from meshtf.layout_search._rough_estimate import RoughEstimate

_OPERATIONS_OF_ALL = 40_000
"""That are planned at most where all layouts are priced: some seconds of work."""

_STARTS = 24
"""Layouts that are priced before the descent."""

_DESCENTS = 3
"""Of those, how many a descent begins from: each with other rules for all tensors."""

_MOST_SETS = 12
"""Of names, for one axis: of those that the estimate finds best."""

_MOST_NAMES = 8
"""That are tried one by one for parameters and activations: those of the largest tensors."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """When the search ends at the latest.

    planned_operations: in all plans together. seconds: None for no limit of time.
    """

    planned_operations: int
    seconds: float | None = None


class OutOfTime(Exception):  # noqa: N818  # no error: what was found so far is good
    """The limits are reached."""


class Search:
    """Of one program, on one mesh.

    Args:
      pricing: of the program.
      choices: of its layouts on the mesh.
      estimate: orders them.
      memory: bytes that a core has.
      limits: when to stop.
    """

    def __init__(
        self, pricing: Pricing, choices: Choices, estimate: RoughEstimate, memory: float, limits: Limits
    ) -> None:
        self._pricing = pricing
        self._choices = choices
        self._estimate = estimate
        self._memory = memory
        self._limits = limits
        self._axes = range(len(choices.mesh_shape))
        self.is_exhaustive = False
        """Whether every layout was priced."""

    def run(self, *, descends: bool = True) -> None:
        """Prices layouts; the best is then among those that are priced.

        Raises:
          OutOfTime: before the end.
        """
        every = list(itertools.islice(self._every(), self._affordable + 1))
        if len(every) <= self._affordable:
            for choice in every:
                self._price(choice)
            self.is_exhaustive = True
            return
        starts = self._priced_starts()
        for start in starts[: _DESCENTS if descends else 0]:
            self._descend(start)

    # Every layout, where there are few

    @property
    def _affordable(self) -> int:
        """How many layouts the limits allow for."""
        left = self._limits.planned_operations - self._pricing.planned_operations
        return min(min(left, _OPERATIONS_OF_ALL) // max(self._pricing.operations, 1), MOST_LAYOUTS)

    def _every(self) -> Iterator[Choice]:
        layouts = self._products(self._choices.all, largest=False)
        for layout in layouts:
            for parameters in [None, *self._products(self._choices.parameters, largest=False)]:
                for activations in self._products(self._choices.activations, largest=False):
                    yield Choice(layout, parameters, activations)

    def _products(self, names: NamesOfShapes, *, largest: bool) -> Iterator[SetsByAxis]:
        by_axis = [self._choices.sets_of(names, axis, largest=largest) for axis in self._axes]
        return (sets for sets in itertools.product(*by_axis) if names.fits(sets))

    # Starts

    def _priced_starts(self) -> list[Choice]:
        """Promising layouts with their parameters as they are, and kept in parts: the best first."""
        best_sets = [self._best_sets(axis) for axis in self._axes]
        layouts = [s for s in itertools.product(*best_sets) if self._choices.all.fits(s)]
        layouts = sorted(layouts, key=self._estimate.seconds)[:_STARTS]
        kept = self._parameters_in_parts()
        starts = [Choice(layout, parameters) for layout in layouts for parameters in kept]
        for choice in starts:
            self._price(choice)
        legal = sorted((c for c in starts if self._rank(c) < _ILLEGAL), key=self._rank)
        best_of_layout: dict[SetsByAxis, Choice] = {}
        for choice in legal:
            best_of_layout.setdefault(choice.layout, choice)
        return list(best_of_layout.values())

    def _best_sets(self, axis: int) -> list[Names]:
        nothing = [NO_NAMES] * len(self._axes)

        def alone(own: Names) -> float:
            return self._estimate.seconds((*nothing[:axis], own, *nothing[axis + 1 :]))

        return sorted(self._choices.sets_of(self._choices.all, axis, largest=True), key=alone)[:_MOST_SETS]

    def _parameters_in_parts(self) -> list[SetsByAxis | None]:
        """None, and the dimension that splits the most bytes of parameters over all axes, kept whole in no core."""
        parameters = self._choices.parameters
        found: list[SetsByAxis | None] = [None]
        for name in parameters.names:
            sets = tuple(frozenset({name}) for _ in self._axes)
            if self._choices.may_move(name) and parameters.fits(sets):
                return [*found, sets]
        return found

    # The descent

    def _descend(self, choice: Choice) -> None:
        components = [change for axis in self._axes for change in self._changes_of(axis)]
        unchanged = 0
        for change in itertools.cycle(components):
            best = min([choice, *change(choice)], key=self._rank)
            unchanged = 0 if best != choice else unchanged + 1
            choice = best
            if unchanged >= len(components):
                return

    def _changes_of(self, axis: int) -> list[Callable[[Choice], Iterable[Choice]]]:
        return [
            lambda choice: self._other_layouts(choice, axis),
            lambda choice: self._other_parameters(choice, axis),
            lambda choice: self._other_activations(choice, axis),
        ]

    def _other_layouts(self, choice: Choice, axis: int) -> Iterator[Choice]:
        names = self._choices.all
        found = self._other_sets(names, choice.layout, axis, names.names_for(axis))
        largest = [_changed(choice.layout, axis, own) for own in self._best_sets(axis)]
        layouts = [sets for sets in dict.fromkeys([*found, *largest]) if names.fits(sets) and sets != choice.layout]
        for sets in sorted(layouts, key=self._estimate.seconds)[:_MOST_SETS]:
            yield dataclasses.replace(choice, layout=sets)

    def _other_parameters(self, choice: Choice, axis: int) -> Iterator[Choice]:
        names = self._choices.parameters
        as_used = tuple(own & frozenset(names.names) for own in choice.layout)
        now = choice.parameters or as_used
        if choice.parameters is not None:
            yield dataclasses.replace(choice, parameters=None)
        for sets in self._other_sets(names, now, axis, names.names_for(axis)[:_MOST_NAMES]):
            if names.fits(sets):
                yield dataclasses.replace(choice, parameters=sets)

    def _other_activations(self, choice: Choice, axis: int) -> Iterator[Choice]:
        names = self._choices.activations
        now = choice.activations or (NO_NAMES,) * len(self._axes)
        ones = [frozenset({name}) for name in names.names_for(axis)[:_MOST_NAMES] if self._choices.may_move(name)]
        for own in [NO_NAMES, *ones]:
            sets = _changed(now, axis, own)
            if sets != now and names.fits(sets):
                yield dataclasses.replace(choice, activations=sets if any(sets) else ())

    def _other_sets(
        self, names: NamesOfShapes, now: SetsByAxis, axis: int, tried: Iterable[str]
    ) -> Iterator[SetsByAxis]:
        """With a name more or less on one axis."""
        own = now[axis]
        for name in tried:
            if self._choices.may_move(name):
                yield _changed(now, axis, own - {name} if name in own else names.with_name(own, name))

    # Prices

    def _rank(self, choice: Choice) -> tuple[float, float, int]:
        """Less is better: what is closer to fitting, then what is quicker, then what has fewer rules."""
        priced = self._price(choice)
        if priced is None:
            return _ILLEGAL
        overflow = max(0.0, priced.peak_bytes - self._memory)
        tables = (choice.layout, choice.parameters or (), choice.activations)
        return (overflow, priced.seconds, sum(len(own) for sets in tables for own in sets))

    def _price(self, choice: Choice) -> PricedLayout | None:
        limits, pricing = self._limits, self._pricing
        over = limits.seconds is not None and pricing.seconds > limits.seconds
        if over or pricing.planned_operations > limits.planned_operations:
            raise OutOfTime
        rules = self._choices.rules
        layout = MeshLayout(
            self._choices.mesh_shape,
            rules(choice.layout),
            None if choice.parameters is None else rules(choice.parameters),
            rules(choice.activations) if any(choice.activations) else None,
        )
        return pricing.price(layout)


_ILLEGAL = (math.inf, math.inf, 0)


def _changed(sets: SetsByAxis, axis: int, own: Names) -> SetsByAxis:
    return (*sets[:axis], own, *sets[axis + 1 :])
