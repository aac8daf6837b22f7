"""Shows timed runs as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import rich.box
import rich.table

from meshtf.train.monitoring.picture import save_picture
from meshtf.train.quality.quality_target import QualityTarget
from meshtf.train.quality.rule_mean import LEAST_RUNS, rule_mean
from meshtf.train.quality.timed_run import TimedRun

MISSING_MATPLOTLIB = "no picture is drawn: it needs matplotlib (pip install 'meshtf[plots]')"

_TITLES = ("run", "seed", "reached", "quality", "steps", "epochs", "seconds", "of evaluations")


def results_table(runs: Sequence[TimedRun], target: QualityTarget) -> rich.table.Table:
    """Returns a table with a row for each run."""
    table = rich.table.Table(title=f"{target.benchmark}: {target}", title_justify="left", box=rich.box.SIMPLE_HEAD)
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    for number, run in enumerate(runs):
        numbers = (f"{run.quality:.4f}", str(run.steps), f"{run.epochs:.2f}", f"{run.seconds:.1f}")
        reached = "yes" if run.is_reached else "no"
        table.add_row(str(number), str(run.seed), reached, *numbers, f"{run.evaluation_seconds:.1f}")
    return table


def result_line(runs: Sequence[TimedRun]) -> str:
    """Returns a sentence with the result by MLPerf's rules, or with the reason why there is none."""
    seconds = [run.seconds if run.is_reached else None for run in runs]
    mean = rule_mean(seconds)
    if mean is not None:
        return f"{mean:.1f} s to the target: the mean of {len(runs)} runs without the fastest and the slowest"
    missing = seconds.count(None)
    if missing > 1:
        return f"no result by the rules: {missing} of {len(runs)} runs missed the target, and at most one may"
    reason = f"no result by the rules: they need {LEAST_RUNS} runs or more, and drop the fastest and the slowest"
    if len(runs) > 1:
        return reason
    return f"{reason}; this one {'reached' if runs[0].is_reached else 'missed'} the target in {runs[0].seconds:.1f} s"


def draw_results(runs: Sequence[TimedRun], target: QualityTarget, path: Path) -> str | None:
    """Draws quality by time of all runs into a PNG, with the target. Returns a sentence if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure  # an optional dependency
    except ImportError:
        return MISSING_MATPLOTLIB
    figure = Figure(figsize=(7, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot()
    for run in runs:
        points = [point for point in run.curve if math.isfinite(point[1])]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, linewidth=1.2, label=f"seed {run.seed}")
    axes.axhline(target.value, color="black", linewidth=0.8, linestyle="--", label="target")
    axes.set_xlabel("seconds since the run began to read data")
    axes.set_ylabel(target.metric)
    axes.set_title(target.benchmark)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    save_picture(figure, path)
    return None
