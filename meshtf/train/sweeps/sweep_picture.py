"""Draws the trials of a sweep: their curves, and their best values by each binding that differs."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshtf.train.monitoring.comparison import MISSING_MATPLOTLIB
from meshtf.train.monitoring.picture import save_picture
from meshtf.train.monitoring.summary import shown_name
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_results import TrialResult

_MOST_PANELS = 7


def draw_sweep(sweep: Sweep, results: Sequence[TrialResult], path: Path) -> str | None:
    """Draws a PNG. If matplotlib is not installed, it returns a sentence that says so.

    The first panel has the metric of each trial by step; each other one its best value by one binding's value.
    """
    try:
        from matplotlib.figure import Figure  # an optional dependency
    except ImportError:
        return MISSING_MATPLOTLIB
    names = sweep.names[: _MOST_PANELS - 1]
    figure = Figure(figsize=(8, 3.0 * (1 + len(names))), dpi=110, layout="constrained")
    first, *others = figure.subplots(1 + len(names), squeeze=False)[:, 0]
    for number, each in enumerate(results):
        label = each.trial.name if number < 10 else None  # more would hide the curves
        first.plot(each.steps, each.metrics, marker="o", markersize=3, linewidth=1.1, label=label)
    first.set_xlabel("step")
    first.set_ylabel(shown_name(sweep.metric))
    if first.lines:
        first.legend(frameon=False, fontsize=7, ncols=2)
    for place, name in zip(others, names, strict=True):
        _draw_values(place, sweep, name, results)
    for place in (first, *others):
        place.grid(alpha=0.3)
    save_picture(figure, path)
    return None


def _draw_values(place: Any, sweep: Sweep, name: str, results: Sequence[TrialResult]) -> None:
    known = [(each.trial.values[name], each.best) for each in results if each.best is not None]
    numbers = [_number(text) for text, _ in known]
    if any(number is None for number in numbers):
        place.plot([text for text, _ in known], [best for _, best in known], "o")
    else:
        place.plot(numbers, [best for _, best in known], "o")
        if name in sweep.log_ranges:
            place.set_xscale("log")
    place.set_xlabel(name)
    place.set_ylabel(f"best {shown_name(sweep.metric)}")


def _number(text: str) -> float | None:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
