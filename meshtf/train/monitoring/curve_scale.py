"""The scale of a picture of curves. A steep beginning, or a spike, must not flatten the rest of a run.

The scale follows the late values: those after the first tenth of the steps. A late value is a spike if it is farther
from the middle half of the values than six times the height of this half. The picture shows all late values except
spikes. It shows the other values above or below them only if all lie within twice the height of the late values. A loss
that falls from 100 to 2 in the first steps, and then from 2 to 1, is shown from about 2 to 1. Below the picture a line
says what is not shown.
"""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshtf.errors import counted

BEGINNING = 0.1
"""The share of a run's first steps that the scale ignores."""

WIDE = 10.0
"""The scale is logarithmic if all values are positive and the greatest usual one is this many times the least."""

_FEW = 5
"""If there are at most this many late values, all values count as late."""

_LINE = 80
"""The most characters in a line below a picture."""

_SPREADS, _ROOM, _MARGIN = 6.0, 2.0, 0.05
"""Multiples of a height: the distance from the middle half that makes a spike, the most room for other values on one
side, and the empty space."""


@dataclasses.dataclass(frozen=True)
class CurveScale:
    """The scale of a picture, and a text on the values that it leaves out.

    Attributes:
      low, high: the least and the greatest value inside, or None if no value is finite.
      is_logarithmic: whether equal ratios are equally far apart.
      cut: a text on the values that are outside, or no number. Empty if there are none.
    """

    low: float | None
    high: float | None
    is_logarithmic: bool
    cut: str

    @classmethod
    def of(cls, curves: Sequence[tuple[Sequence[int], Sequence[float]]]) -> CurveScale:
        """Returns the scale for curves, each of steps and values, that are shown together."""
        steps = np.concatenate([np.zeros(0), *(np.asarray(own, np.float64) for own, _ in curves)])
        values = np.concatenate([np.zeros(0), *(np.asarray(own, np.float64) for _, own in curves)])
        is_finite = np.isfinite(values)
        if not is_finite.any():
            return cls(None, None, False, _cut(steps, values, -math.inf, math.inf))
        late = np.concatenate([_late(*curve) for curve in curves])
        late = late if len(late) else values[is_finite]
        low, high = _usual(late)
        is_logarithmic = bool(values[is_finite].min() > 0 and high > WIDE * low)
        if is_logarithmic:
            low, high = np.exp(_limits(np.log(late), np.log(values[is_finite])))
        else:
            low, high = _limits(late, values[is_finite])
        return cls(float(low), float(high), is_logarithmic, _cut(steps, values, low, high))

    def apply(self, axes: Any) -> None:
        """Sets the scale of a picture of matplotlib's. The text below its steps says what is left out."""
        if self.is_logarithmic:
            axes.set_yscale("log")
        if self.low is not None and self.high is not None:
            axes.set_ylim(self.low, self.high)
        axes.set_xlabel("\n".join(["step", *textwrap.wrap(self.cut, _LINE)]))

    def without_spikes(self, values: Sequence[float]) -> list[float]:
        """Returns the values for a mean. A value far outside counts as if it were nearer, and a NaN as the value
        before it.
        """
        if self.low is None or self.high is None:
            return list(values)
        height = self.high - self.low
        least, greatest = self.low - height, self.high + height
        kept: list[float] = []
        for value in values:
            last = kept[-1] if kept else min(max(0.0, least), greatest)
            kept.append(last if math.isnan(value) else min(max(value, least), greatest))
        return kept


def _late(steps: Sequence[int], values: Sequence[float]) -> np.ndarray:
    """Returns the finite values after the beginning of a curve."""
    finite = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
    if not finite:
        return np.zeros(0)
    first, last = finite[0][0], finite[-1][0]
    late = [value for step, value in finite if step >= first + BEGINNING * (last - first)]
    return np.array(late if len(late) > _FEW else [value for _, value in finite])


def _usual(late: np.ndarray) -> tuple[float, float]:
    """Returns the least and the greatest late value, without spikes."""
    lower, upper = np.quantile(late, [0.25, 0.75])
    spread = _SPREADS * (upper - lower)
    inside = late[(late >= lower - spread) & (late <= upper + spread)]
    return float(inside.min()), float(inside.max())


def _limits(late: np.ndarray, every: np.ndarray) -> np.ndarray:
    """Returns [low, high]: all late values except spikes. The others on one side are included if all lie within
    twice the height of these.
    """
    low, high = _usual(late)
    height = high - low or abs(high) or 1.0
    least, greatest = float(every.min()), float(every.max())
    low = least if low - least <= _ROOM * height else low - height / 4
    high = greatest if greatest - high <= _ROOM * height else high + height / 4
    margin = _MARGIN * (high - low) or _MARGIN * height
    return np.array([low - margin, high + margin])


def _cut(steps: np.ndarray, values: np.ndarray, low: float, high: float) -> str:
    parts = []
    for word, chosen, extreme in (("above", values > high, np.argmax), ("below", values < low, np.argmin)):
        chosen &= np.isfinite(values)
        if count := int(chosen.sum()):
            place = extreme(values[chosen])
            most = f"{values[chosen][place]:.4g} at step {steps[chosen][place]:.0f}"
            parts.append(f"{counted(count, 'value')} {word}, {'' if count == 1 else 'up to '}{most}")
    strange = ~np.isfinite(values)
    if count := int(strange.sum()):
        verb = "is" if count == 1 else "are"
        parts.append(f"{counted(count, 'value')} that {verb} not finite, at step {steps[strange][0]:.0f}")
    return f"not shown: {'; '.join(parts)}" if parts else ""
