"""The trials of a sweep: every combination of its choices, or samples of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from meshtf.train.configuration import ConfigurationError
from meshtf.train.sweeps.sweep import Sweep

_NO_GRID = """\
{name} has a range, and a grid needs a list of values. Give --samples=N, which draws N trials, or put values into
Sweep.choices."""


@dataclasses.dataclass(frozen=True)
class Trial:
    """One training of a sweep.

    Attributes:
      number: its number, which its folder has in its name.
      values: the value of each binding that differs, as gin writes it.
    """

    number: int
    values: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of its folder."""
        return f"trial_{self.number:03d}"

    @property
    def bindings(self) -> list[str]:
        """The bindings of the trial, as --gin_param takes them."""
        return [f"{name} = {text}" for name, text in self.values.items()]


def grid(sweep: Sweep) -> list[dict[str, str]]:
    """Returns every combination of the choices. The last binding changes fastest.

    Raises:
      ConfigurationError: if the sweep has ranges.
    """
    if ranges := [*sweep.ranges, *sweep.log_ranges]:
        raise ConfigurationError(_NO_GRID.format(name=ranges[0]))
    combinations = itertools.product(*sweep.choices.values())
    return _distinct([_texts(dict(zip(sweep.choices, each, strict=True))) for each in combinations])


def samples(sweep: Sweep, count: int, seed: int) -> list[dict[str, str]]:
    """Draws trials. A sample depends only on the seed and its place, so a larger count adds to a smaller one.

    Duplicate samples are dropped.
    """
    return _distinct([_texts(_sample(sweep, np.random.default_rng([seed, place]))) for place in range(count)])


def first_values(sweep: Sweep) -> list[dict[str, str]]:
    """Returns a few combinations that contain each value of each choice, to check names and values."""
    longest = max(map(len, sweep.choices.values()), default=1)
    lowest = {name: ends[0] for name, ends in (*sweep.ranges.items(), *sweep.log_ranges.items())}
    return [_texts({**{n: v[i % len(v)] for n, v in sweep.choices.items()}, **lowest}) for i in range(longest)]


def numbered(values: Sequence[Mapping[str, str]], before: Sequence[Trial] = ()) -> list[Trial]:
    """Returns trials with these values. Earlier trials keep their numbers, and new ones follow."""
    known = {tuple(sorted(trial.values.items())): trial for trial in before}
    free = itertools.count(max((trial.number + 1 for trial in before), default=0))
    return [known.get(tuple(sorted(each.items()))) or Trial(next(free), dict(each)) for each in values]


def _sample(sweep: Sweep, random: np.random.Generator) -> dict[str, Any]:
    chosen = {name: values[int(random.integers(len(values)))] for name, values in sweep.choices.items()}
    drawn = {name: _drawn(ends, float(random.random()), is_log=False) for name, ends in sweep.ranges.items()}
    drawn_logs = {name: _drawn(ends, float(random.random()), is_log=True) for name, ends in sweep.log_ranges.items()}
    return {**chosen, **drawn, **drawn_logs}


def _drawn(ends: Sequence[float], share: float, *, is_log: bool) -> float:
    """Returns the number at a share of the way, with four digits, or more in a narrow range.

    Between whole numbers, it is a whole one.
    """
    is_whole = all(isinstance(end, int) for end in ends)
    low, high = (ends[0] - 0.5, ends[1] + 0.5) if is_whole else (ends[0], ends[1])
    if is_log:
        found = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
    else:
        found = low + share * (high - low)
    if is_whole:
        return min(max(round(found), int(ends[0])), int(ends[1]))
    digits = 4 + math.floor(math.log10(max(1.0, abs(low) / (high - low), abs(high) / (high - low))))
    return min(max(float(f"{found:.{digits}g}"), float(ends[0])), float(ends[1]))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: repr(value) for name, value in values.items()}


def _distinct(found: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    return list({tuple(each.items()): each for each in found}.values())
