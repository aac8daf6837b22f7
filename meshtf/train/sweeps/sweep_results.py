"""The results of a sweep: a row for each trial, as a table, as CSV and as JSON."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rich.box
import rich.table
from rich.markup import escape

from meshtf.files.replaced_file import replace_file
from meshtf.train.monitoring.metrics import curve_of
from meshtf.train.monitoring.summary import number_text, shown_name
from meshtf.train.sweeps.sweep import Sweep
from meshtf.train.sweeps.sweep_folder import WAITING, SweepFolder
from meshtf.train.sweeps.trials import Trial
from meshtf_programs.strict_json import json_text


@dataclasses.dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    Attributes:
      trial: the trial.
      state: how it ended.
      steps: the steps at which the metric was measured.
      metrics: the values at these steps.
      best: the best value. None if there is none.
      best_step: its step.
    """

    trial: Trial
    state: str
    steps: Sequence[int]
    metrics: Sequence[float]
    best: float | None
    best_step: int | None

    @property
    def last(self) -> float | None:
        """The last value."""
        return self.metrics[-1] if self.metrics else None


def sweep_results(
    sweep: Sweep, folder: SweepFolder, trials: Sequence[Trial], states: Mapping[int, str]
) -> list[TrialResult]:
    """Returns the results of all trials, the best first. Trials without a value come last."""
    found = [_result(sweep, folder, trial, states.get(trial.number, WAITING)) for trial in trials]
    sign = 1.0 if sweep.mode == "min" else -1.0
    return sorted(found, key=lambda each: (each.best is None, 0.0 if each.best is None else sign * each.best))


def results_table(sweep: Sweep, results: Sequence[TrialResult]) -> rich.table.Table:
    """Returns a table with a row for each trial, and a column for each binding that differs."""
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    table.add_column("trial")
    for title in (f"best {shown_name(sweep.metric)}", "at step", "last", "steps"):
        table.add_column(title, justify="right")
    for title in ("state", *map(escape, sweep.names)):
        table.add_column(title, overflow="fold")
    for each in results:
        step = "-" if each.best_step is None else str(each.best_step)
        cells = [_text(each.best), step, _text(each.last), str(max(each.steps, default=0))]
        values = [escape(each.trial.values[name]) for name in sweep.names]
        table.add_row(each.trial.name, *cells, each.state, *values)
    return table


def write_results(sweep: Sweep, results: Sequence[TrialResult], folder: Path) -> None:
    """Writes results.csv and results.json. Raises OSError if they cannot be written."""
    rows = [_row(each) for each in results]
    text = io.StringIO()
    facts = ["trial", "state", "best", "best_step", "last"]
    writer = csv.DictWriter(text, [*facts, *sweep.names], lineterminator="\n")
    writer.writeheader()
    writer.writerows({**{name: row[name] for name in facts}, **row["values"]} for row in rows)
    replace_file(folder / "results.csv", text.getvalue().encode())
    content = {"metric": sweep.metric, "mode": sweep.mode, "trials": rows}
    replace_file(folder / "results.json", (json_text(content, indent=1) + "\n").encode())


def _result(sweep: Sweep, folder: SweepFolder, trial: Trial, state: str) -> TrialResult:
    steps, values = curve_of(folder.lines(trial), sweep.metric)
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        return TrialResult(trial, state, steps, values, None, None)
    best = sweep.best(numbers)
    return TrialResult(trial, state, steps, values, best, steps[values.index(best)])


def _row(each: TrialResult) -> dict[str, Any]:
    return {
        "trial": each.trial.name,
        "state": each.state,
        "best": each.best,
        "best_step": each.best_step,
        "last": each.last,
        "values": dict(each.trial.values),
    }


def _text(value: float | None) -> str:
    return "-" if value is None else number_text(value)
