"""Several runs side by side: how they ended, which options differ, and their curves in one picture."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import rich.box
import rich.table
from rich.markup import escape

from meshtf.errors import counted
from meshtf.files.regular_file import read_regular
from meshtf.lowering.report.text_table import wrapped
from meshtf.train.configuration import ConfigurationError
from meshtf.train.monitoring.curve_scale import CurveScale
from meshtf.train.monitoring.loss_curve import smoothed
from meshtf.train.monitoring.metrics import HELD_OUT, LARGEST_FILE, curve_of, read_metrics
from meshtf.train.monitoring.picture import save_picture, shown_text
from meshtf.train.monitoring.summary import GAP, MARGINS, number_text, place_of, shown_name
from meshtf.train.runs.resuming import bindings_of
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.training import LOSS

MISSING_MATPLOTLIB = "no picture is drawn: it needs matplotlib (pip install 'meshtf[plots]')"

_ABSENT = "-"
_NAMES_WIDTH, _RUN_WIDTH = 28, 19
"""The fewest columns of a console for the names of rows, and for each run."""

_MOST_PANELS = 6
_LINE_STYLES = ("-", "--", ":", "-.")
_NUM_COLOURS = 10


@dataclasses.dataclass(frozen=True)
class ComparedRun:
    """The facts of a run that are compared.

    Attributes:
      label: the end of its path that distinguishes it from the others.
      lines: its metrics.
      options: its gin bindings, by name, as text. The configuration is read, and nothing in it is run.
      problems: sentences on the files that could not be read.
    """

    label: str
    lines: Sequence[Mapping[str, Any]]
    options: Mapping[str, str]
    problems: Sequence[str]


def read_runs(paths: Sequence[str]) -> list[ComparedRun]:
    """Reads the runs in these folders.

    Raises:
      ConfigurationError: if there are fewer than two, a folder is given twice, or one is not that of a run.
    """
    if len(paths) < 2:
        raise ConfigurationError(f"give at least two runs to compare, not {len(paths)}: meshtf-compare RUN RUN ...")
    folders = [RunFolder.existing(path) for path in paths]
    first: dict[Path, str] = {}
    for path, folder in zip(paths, folders, strict=True):
        real = folder.path.resolve()
        if real in first:
            raise ConfigurationError(
                f"{path} is given twice{'' if first[real] == path else f', as {first[real]} before'}"
            )
        first[real] = path
    labels = distinct_labels(list(first))
    return [_read_run(folder, label) for folder, label in zip(folders, labels, strict=True)]


def distinct_labels(paths: Sequence[Path]) -> list[str]:
    """Returns as many of each path's last parts as distinguish all paths."""
    length = next(n for n in itertools.count(1) if len({path.parts[-n:] for path in paths}) == len(paths))
    return ["/".join(path.parts[-length:]) for path in paths]


def comparison_tables(runs: Sequence[ComparedRun], width: int) -> Iterator[rich.table.Table]:
    """Yields tables with a column for each run: how it ended, and then the options that differ.

    If a console of `width` columns has no room for all runs, there are several tables, one below the other.
    """
    together = max(1, (width - MARGINS - _NAMES_WIDTH) // (_RUN_WIDTH + GAP))
    parts = [[(shown_name(name), texts) for name, texts in _metric_rows(runs)], [*_different_options(runs)]]
    for first in range(0, len(runs), together):
        shown = slice(first, first + together)
        yield _table([run.label for run in runs[shown]], [[(n, t[shown]) for n, t in part] for part in parts], width)


def _table(labels: Sequence[str], parts: Sequence[Sequence[tuple[str, list[str]]]], width: int) -> rich.table.Table:
    """Returns a table from rows with a name, and a text for each label. Long names and texts are wrapped, if
    possible after punctuation.
    """
    rows = [row for part in parts for row in part]
    room = width - MARGINS - GAP * len(labels)
    wanted = sum(max(map(len, [label, *(texts[i] for _, texts in rows)])) for i, label in enumerate(labels))
    of_names = min(max(len(name) for name, _ in rows), max(_NAMES_WIDTH, room - wanted))
    each = max(1, (room - of_names) // len(labels))
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD)
    table.add_column("", overflow="fold")
    for label in labels:
        table.add_column(escape(wrapped(label, each)), justify="right", overflow="fold")
    for part in parts:
        for name, texts in part:
            table.add_row(escape(wrapped(name, of_names)), *(escape(wrapped(text, each)) for text in texts))
        table.add_section()
    return table


def draw_comparison(runs: Sequence[ComparedRun], path: Path) -> str | None:
    """Draws the loss, and each other mean over held-out examples, of all runs by step, into a PNG.

    If matplotlib is not installed, it returns a sentence that says so.
    """
    try:
        from matplotlib.figure import Figure  # an optional dependency
    except ImportError:
        return MISSING_MATPLOTLIB
    others = [name for name in _held_out_names(runs) if name != f"{HELD_OUT}{LOSS}"]
    panels = [LOSS, *others][:_MOST_PANELS]
    figure = Figure(figsize=(8, 3.2 * len(panels) + 0.8), dpi=110, layout="constrained")
    for place, name in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        shown = (LOSS, f"{HELD_OUT}{LOSS}") if name == LOSS else (name,)
        scale = CurveScale.of([curve_of(run.lines, curve) for run in runs for curve in shown])
        for number, run in enumerate(runs):
            _draw_curves(place, name, run, number, scale)
        place.set_ylabel(shown_text(name.replace(HELD_OUT, "held out: ", 1)))
        place.grid(alpha=0.3)
        if place.lines:
            place.legend(frameon=False, fontsize=8)
        else:
            place.text(0.5, 0.5, "no run has any", transform=place.transAxes, ha="center")
        place.set_xlim(0, max((line["step"] for run in runs for line in run.lines), default=1) * 1.02)
        scale.apply(place)
    save_picture(figure, path)
    return None


def _draw_curves(place: Any, name: str, run: ComparedRun, number: int, scale: CurveScale) -> None:
    style = {"color": f"C{number % _NUM_COLOURS}", "linestyle": _LINE_STYLES[number // _NUM_COLOURS % 4]}
    label = shown_text(run.label)
    steps, values = curve_of(run.lines, name)
    if name != LOSS:
        if steps:
            place.plot(steps, values, **style, marker="o", markersize=3, linewidth=1.2, label=label)
        return
    if steps:
        calm = smoothed(scale.without_spikes(values))
        place.plot(steps, calm, **style, linewidth=1.2, alpha=0.55, label=f"{label}: training, smoothed")
    steps, values = curve_of(run.lines, f"{HELD_OUT}{LOSS}")
    if steps:
        place.plot(steps, values, **style, marker="o", markersize=4, linewidth=1.6, label=f"{label}: held out")


def _read_run(folder: RunFolder, label: str) -> ComparedRun:
    problems: list[str] = []

    def read(path: Path, how: Callable[[Path], Any], otherwise: Any) -> Any:
        try:
            return how(path)
        except OSError as error:
            problems.append(f"{path} cannot be read: {error.strerror or error}")
            return otherwise

    lines, written = read(folder.metrics, _lines_and_count, ([], 0)) if folder.metrics.exists() else ([], 0)
    if written > len(lines):
        damaged, verb = written - len(lines), "is" if written - len(lines) == 1 else "are"
        problems.append(f"{folder.metrics}: {damaged} of {counted(written, 'line')} {verb} damaged, and skipped")
    if not written and not problems:
        problems.append(f"{folder.path} has no metrics yet")
    options = bindings_of(read(folder.operative_config, _text, ""))
    return ComparedRun(label, lines, options, problems)


def _lines_and_count(path: Path) -> tuple[list[dict[str, Any]], int]:
    """Returns the whole lines of a metrics file, and the number of all lines."""
    return read_metrics(path), sum(1 for line in read_regular(path, LARGEST_FILE).splitlines() if line.strip())


def _text(path: Path) -> str:
    return read_regular(path, LARGEST_FILE).decode("utf-8", "replace")


def _held_out_names(runs: Sequence[ComparedRun]) -> list[str]:
    found = {name: None for run in runs for line in run.lines for name in line if name.startswith(HELD_OUT)}
    return [name for name in found if any(curve_of(run.lines, name)[0] for run in runs)]


def _different_options(runs: Sequence[ComparedRun]) -> Iterator[tuple[str, list[str]]]:
    """Yields the names of the options that differ, with a text of each run."""
    for name in sorted({name for run in runs for name in run.options}):
        texts = [run.options.get(name, _ABSENT) for run in runs]
        if len(set(texts)) > 1:
            yield name, texts


def _metric_rows(runs: Sequence[ComparedRun]) -> Iterator[tuple[str, list[str]]]:
    """Yields the names of metrics, with a text of each run."""
    yield "steps", [str(max((line["step"] for line in run.lines), default=0)) for run in runs]
    yield "loss", [_of(run, LOSS, _last) for run in runs]
    for name in _held_out_names(runs):
        yield name, [_of(run, name, _last) for run in runs]
        if any(len(curve_of(run.lines, name)[0]) > 1 for run in runs):
            for word, find in (("least", min), ("greatest", max)):
                yield f"  {word}, at step", [_of(run, name, _at_step(find)) for run in runs]
    speeds = {name: None for run in runs for line in run.lines for name in line if name.endswith("_per_second")}
    for name in speeds:
        yield f"{name.replace('_', ' ')}, median", [_of(run, name, _median) for run in runs]


def _of(run: ComparedRun, name: str, text: Callable[[list[int], list[float]], str]) -> str:
    steps, values = curve_of(run.lines, name)
    return text(steps, values) if steps else _ABSENT


def _last(_: list[int], values: list[float]) -> str:
    return number_text(values[-1])


def _median(_: list[int], values: list[float]) -> str:
    return number_text(float(round(statistics.median(values))))


def _at_step(find: Callable[[list[float]], float]) -> Callable[[list[int], list[float]], str]:
    def text(steps: list[int], values: list[float]) -> str:
        place = place_of(find, values)
        return f"{number_text(values[place])}, {steps[place]}"

    return text
