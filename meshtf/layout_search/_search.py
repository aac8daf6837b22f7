"""The search: it prices every layout if there are few. If there are many, it descends from the most promising ones.

1. A rough estimate from the program's products orders the sets of names that axes can split.
2. The best of these are priced. The fastest layouts that do not fit are also priced with activations in more parts.
3. From the three best, descents change one axis of one table at a time, to the best names there, and exchange two axes.
  They take turns. They end when neither helps.

For example, the descent starts at "batch:data;d_ff:model" with 80 ms. Splitting `vocab` over `model` too takes 72 ms,
so this is the next layout. No other change of one axis is below 72 ms, and the exchange of the axes takes 95 ms. So the
descent ends there.

A layout that does not fit counts as slower, by the square of how much too large it is. To go on from a fast layout that
nearly fits is better than from a slow one that is a little smaller. Prices are those of whole plans, so nothing is left
out of them.
"""

from __future__ import annotations

import dataclasses
import functools
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from meshtf.layout_search._choices import MOST_LAYOUTS, NO_NAMES, Choice, Choices, Names, NamesOfShapes, SetsByAxis
from meshtf.layout_search._pricing import MeshLayout, PricedLayout, Pricing
from meshtf.layout_search._rough_estimate import RoughEstimate

_OPERATIONS_OF_ALL = 40_000
"""The most operations that are planned if all layouts are priced: some seconds of work."""

_STARTS = 24
"""How many layouts are priced before the descent."""

_STARTS_OF_MANY = 8
"""How many layouts are priced for each mesh, if there are several meshes to choose from."""

_FAR = 2.0
"""A layout is not priced if its estimate, which is too low, is more than this many times the least price."""

_DESCENTS = 3
"""The number of starts from which descents begin. They differ in the rules for all tensors."""

_MOST_SETS = 12
"""The most sets of names that are tried for one axis, the best by the estimate."""

_MOST_NAMES = 8
"""The most names that are tried one by one for parameters and activations: those of the largest tensors."""

_HOPELESS = 1.5
"""No descent begins from a start that is this many times slower than the best start."""

_MOSTLY = 0.5
"""The least share of all parameters that an axis splits, if parameters are kept in more parts."""

_LEAST_GAIN = 1e-3
"""The least share of a step's time that a round must gain for the descent to continue. A change that gains less is
still made."""

Rank = tuple[float, float, int]
"""The rank of a layout; lower is better."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of a search.

    planned_operations: the most operations, in all plans together. seconds: the most seconds, or None for no limit.
    """

    planned_operations: int
    seconds: float | None = None

    def priced(self, pricing: Pricing, layout: MeshLayout) -> PricedLayout | None:
        """Returns the price of a layout, or None if the program cannot have it. Raises OutOfTime if a limit is
        reached.
        """
        over = self.seconds is not None and pricing.seconds > self.seconds
        if over or self.is_over_in_operations(pricing):
            raise OutOfTime
        return pricing.price(layout)

    def is_over_in_operations(self, pricing: Pricing) -> bool:
        """Tells whether the search has planned more operations than it may."""
        return pricing.planned_operations > self.planned_operations


class OutOfTime(Exception):  # noqa: N818  # no error: what was found so far is good
    """The limits are reached."""


class Search:
    """The search for layouts of one program on one mesh.

    Args:
      pricing: prices layouts of the program.
      choices: the choices of its layouts on the mesh.
      estimate: orders the choices.
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

    def run(self, *, meshes: int = 1) -> None:
        """Prices layouts. The best one is then among the priced ones.

        Args:
          meshes: how many meshes there are to choose from. If there are several, only the most promising layouts are
            priced on each.

        Raises:
          OutOfTime: if the limits end it.
        """
        affordable = self._affordable // meshes
        every = list(itertools.islice(self._every(), affordable + 1))
        if len(every) <= affordable:
            for choice in every:
                self._price(choice)
            self.is_exhaustive = True
            return
        # A descent ends at a layout that no single change improves, and the best layout may be several changes away. So
        # there are descents from several layouts.
        starts = self._priced_starts(_STARTS if meshes == 1 else _STARTS_OF_MANY)
        if meshes == 1:
            near = self._near(starts)
            ends = self._descended(self._near([*near, *self._lean(near)])[:_DESCENTS], self._penalised)
            # As long as nothing fits, the time of a layout matters less than the memory that it lacks.
            if ends and not any(self._fits(end) for end in ends):
                self._descended([min(ends, key=self._closest_to_fitting)], self._closest_to_fitting)

    # Every layout, if there are few

    @property
    def _affordable(self) -> int:
        """The number of layouts that the limits still allow."""
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

    @property
    def estimated_seconds(self) -> float:
        """The estimated seconds of the most promising layout, or infinity if there is none."""
        return min(map(self._estimate.seconds, self._promising(1)), default=math.inf)

    def _promising(self, most: int) -> list[SetsByAxis]:
        """Returns the layouts with the least estimates."""
        best_sets = [self._best_sets(axis) for axis in self._axes]
        names = self._choices.all
        layouts = dict.fromkeys(map(names.thinned, itertools.product(*best_sets)))
        return heapq.nsmallest(most, filter(names.fits, layouts), key=self._estimate.seconds)

    def _priced_starts(self, most: int) -> list[Choice]:
        """Returns promising layouts, the best first. Each has its parameters as they are used, or in more parts
        if that is better.
        """
        starts: list[Choice] = []
        least = math.inf
        for layout in self._promising(most):
            if self._estimate.seconds(layout) > _FAR * least:
                break
            starts.append(self._better_start(layout))
            least = min(least, self._penalised(starts[-1])[0])
        return sorted((c for c in starts if self._penalised(c) < _ILLEGAL), key=self._penalised)

    def _better_start(self, layout: SetsByAxis) -> Choice:
        in_parts = self._in_parts(layout)
        starts = [Choice(layout), *([Choice(layout, in_parts)] if in_parts is not None else [])]
        return min(starts, key=self._penalised)

    def _lean(self, starts: Iterable[Choice]) -> Iterator[Choice]:
        """Yields the fastest layouts that do not fit, with activations in more parts. They may fit then, and be
        the best.
        """
        too_large = (start for start in starts if not self._fits(start))
        for start in heapq.nsmallest(_DESCENTS, too_large, key=lambda choice: self._penalised(choice)[1]):
            others = (other for axis in self._axes for other in self._other_activations(start, axis))
            yield min(others, key=self._penalised, default=start)

    def _best_sets(self, axis: int) -> list[Names]:
        nothing = [NO_NAMES] * len(self._axes)

        def alone(own: Names) -> float:
            return self._estimate.seconds((*nothing[:axis], own, *nothing[axis + 1 :]))

        return sorted(self._choices.sets_of(self._choices.all, axis, largest=True), key=alone)[:_MOST_SETS]

    def _in_parts(self, layout: SetsByAxis) -> SetsByAxis | None:
        """Returns a layout of the parameters in which every axis splits a name that most of them have.

        Returns None if every axis already splits most parameters.
        """
        names = self._choices.parameters
        found = as_used = self._as_used(layout)
        for axis in self._axes:
            if names.share(as_used[axis]) < _MOSTLY:
                tried = [n for n in names.names_for(axis) if self._choices.may_move(n)]
                for name in sorted(tried, key=lambda n: -names.share(frozenset({n}))):
                    sets = _changed(found, axis, names.with_name(found[axis], name))
                    if names.fits(sets):
                        found = sets
                        break
        return None if found == as_used else found

    def _as_used(self, layout: SetsByAxis) -> SetsByAxis:
        there = frozenset(self._choices.parameters.names)
        return tuple(own & there for own in layout)

    # The descent

    def _near(self, choices: Iterable[Choice]) -> list[Choice]:
        """Returns the best choice and those that are not much slower, the best first. They may need more memory."""
        best_first = sorted(choices, key=self._penalised)
        return [c for c in best_first if self._penalised(c)[1] < _HOPELESS * self._penalised(best_first[0])[0]]

    def _descended(self, starts: Sequence[Choice], rank: Callable[[Choice], Rank]) -> list[Choice]:
        return descended(starts, rank, functools.partial(self._after_round, rank=rank))

    def _after_round(self, choice: Choice, rank: Callable[[Choice], Rank]) -> Choice:
        """Returns the layout after the best change of each axis of each table in turn, and the best exchange of two
        axes.
        """
        for table in (self._other_activations, self._other_parameters, self._other_layouts):
            for axis in self._axes:
                choice = min([choice, *table(choice, axis)], key=rank)
        return min([choice, *self._exchanges(choice)], key=rank)

    def _exchanges(self, choice: Choice) -> Iterator[Choice]:
        """Yields the choices in which two axes change places in all tables. Single changes that lead there may all pass
        through slower layouts.
        """
        for one, other in itertools.combinations(self._axes, 2):
            if (exchanged := self._choices.exchanged(choice, one, other)) is not None:
                yield exchanged

    def _other_layouts(self, choice: Choice, axis: int) -> Iterator[Choice]:
        names = self._choices.all
        found = self._other_sets(names, choice.layout, axis, names.names_for(axis))
        largest = [names.thinned(_changed(choice.layout, axis, own)) for own in self._best_sets(axis)]
        layouts = [sets for sets in dict.fromkeys([*found, *largest]) if names.fits(sets) and sets != choice.layout]
        far = _FAR * self._penalised(choice)[0]
        for sets in sorted(layouts, key=self._estimate.seconds)[:_MOST_SETS]:
            if self._estimate.seconds(sets) <= far:
                yield dataclasses.replace(choice, layout=sets)

    def _other_parameters(self, choice: Choice, axis: int) -> Iterator[Choice]:
        names = self._choices.parameters
        now = choice.parameters or self._as_used(choice.layout)
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
        """Yields the sets in which one axis has one more name or one less."""
        own = now[axis]
        for name in tried:
            if self._choices.may_move(name):
                yield _changed(now, axis, own - {name} if name in own else names.with_name(own, name))

    # Prices

    def _penalised(self, choice: Choice) -> Rank:
        """Returns a rank that prefers fast layouts, then fewer rules. A layout that does not fit counts as slower."""
        priced = self._price(choice)
        if priced is None:
            return _ILLEGAL
        # A finite penalty lets a descent pass through layouts that nearly fit.
        penalty = max(1.0, priced.peak_bytes / self._memory) ** 2
        return (priced.seconds * penalty, priced.seconds, _rules(choice))

    def _closest_to_fitting(self, choice: Choice) -> Rank:
        """Returns a rank that prefers layouts that nearly fit, then fast ones, then ones with fewer rules."""
        priced = self._price(choice)
        if priced is None:
            return _ILLEGAL
        return (max(0.0, priced.peak_bytes - self._memory), priced.seconds, _rules(choice))

    def _fits(self, choice: Choice) -> bool:
        return self._closest_to_fitting(choice)[0] == 0.0

    def _price(self, choice: Choice) -> PricedLayout | None:
        rules = self._choices.rules
        layout = MeshLayout(
            self._choices.mesh_shape,
            rules(choice.layout),
            None if choice.parameters is None else rules(choice.parameters),
            rules(choice.activations) if any(choice.activations) else None,
        )
        return self._limits.priced(self._pricing, layout)


_ILLEGAL = (math.inf, math.inf, 0)


def descended(
    starts: Iterable[Choice], rank: Callable[[Choice], Rank], after_round: Callable[[Choice], Choice]
) -> list[Choice]:
    """Returns the ends of descents from these starts.

    The descents take turns, the best one first, so that each makes progress before the search reaches its limits. A
    descent ends after a round that gains nothing, or so little that another such gain would not make it the best. Later
    rounds usually gain less than earlier ones.

    Args:
      starts: the layouts where the descents begin.
      rank: the rank of a layout.
      after_round: returns the layout after one more round of a descent. It is no worse than the layout before.
    """
    ends = sorted(starts, key=rank)
    going = list(range(len(ends)))
    while going:
        before = [rank(end) for end in ends]
        for n in going:
            ends[n] = after_round(ends[n])
        after = [rank(end) for end in ends]
        least = min(after)[0]
        going = [n for n in going if _gains(before[n], after[n]) and 2 * after[n][0] - before[n][0] <= least]
        going.sort(key=after.__getitem__)
    return ends


def _rules(choice: Choice) -> int:
    tables = (choice.layout, choice.parameters or (), choice.activations)
    return sum(len(own) for sets in tables for own in sets)


def _gains(old: Rank, new: Rank) -> bool:
    return any(b < (1 - _LEAST_GAIN) * a for a, b in zip(old[:2], new[:2], strict=True))


def _changed(sets: SetsByAxis, axis: int, own: Names) -> SetsByAxis:
    return (*sets[:axis], own, *sets[axis + 1 :])
