"""Sweeps over several parameters that are too long to cross all values of all."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any


def pairwise(cases: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Chooses few of the cases, in which every two values meet that meet in any of them.

    Most faults need one value of one parameter, or two of two (Kuhn et al. 2004), so pairs find nearly what all
    crossings find. The choice is greedy: the case with the most pairs that are new, the first one of equals.

    Args:
      cases: every crossing that is allowed, a value of each parameter in it.

    Examples:
      >>> pairwise(itertools.product("ab", "xy", (1, 2)))
      [('a', 'x', 1), ('a', 'y', 2), ('b', 'x', 2), ('b', 'y', 1)]
    """
    left = {case: pairs for case in cases for pairs in [_pairs(case)]}
    missing, chosen = set().union(*left.values()), []
    while missing:
        best = max(left, key=lambda case: len(left[case] & missing))
        chosen.append(best)
        missing -= left.pop(best)
    return chosen


def _pairs(case: tuple[Any, ...]) -> set[Any]:
    """The pairs of its values, each with the place of its parameter."""
    return set(itertools.combinations(enumerate(case), 2))
