"""Shows a run in one table: each metric's first, last, least and greatest value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import rich.box
import rich.markup
import rich.table

from meshtf.lowering.report.text_table import wrapped
from meshtf.train.monitoring.metrics import HELD_OUT, curve_of

MARGINS, GAP, _LEAST = 4, 3, 8
"""Columns of a console: the empty ones on both sides of a table, those between two of its columns, and a name's."""

NARROW = 76
"""A console with fewer columns only shows the last value and the least."""


def summary_table(lines: Sequence[Mapping[str, Any]], title: str, width: int) -> rich.table.Table:
    """Returns a table of lines of metrics: the loss, the model's metrics, and the means over held-out examples.

    The least and the greatest value are shown with their steps. Vectors have no row.

    Args:
      lines: the lines as they were written.
      title: the title of the table.
      width: the columns of the console.
    """
    is_narrow = width < NARROW
    table = rich.table.Table(title=rich.markup.escape(title), title_justify="left", box=rich.box.SIMPLE_HEAD)
    table.add_column("metric", overflow="fold")
    titles = ["last", "least", "step"] if is_narrow else ["first", "last", "least", "step", "greatest", "step"]
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    rows = []
    for name in _names(lines):
        steps, values = curve_of(lines, name)
        least, greatest = (place_of(find, values) for find in (min, max))
        first, last = number_text(values[0]), number_text(values[-1])
        cells = [number_text(values[least]), str(steps[least]), number_text(values[greatest]), str(steps[greatest])]
        rows.append((shown_name(name), [last, *cells[:2]] if is_narrow else [first, last, *cells]))
    numbers = [max(map(len, column)) for column in zip(titles, *(cells for _, cells in rows), strict=True)]
    of_names = max(_LEAST, width - MARGINS - GAP * len(titles) - sum(numbers))
    for name, cells in rows:
        table.add_row(rich.markup.escape(wrapped(name, of_names)), *cells)
    return table


def shown_name(name: str) -> str:
    """Returns a metric's name as tables have it."""
    return f"held out: {name.removeprefix(HELD_OUT)}" if name.startswith(HELD_OUT) else name


def number_text(value: float) -> str:
    """Returns a number with four digits. A whole or a large number is shown as a whole number."""
    return f"{value:,.0f}" if value.is_integer() or abs(value) >= 10_000 else f"{value:.4g}"


def place_of(find: Callable[[list[float]], float], values: Sequence[float]) -> int:
    """Returns the index of the least or the greatest value, where `find` is `min` or `max`. NaNs are ignored. If
    there are only NaNs, it is 0.
    """
    numbers = [value for value in values if not math.isnan(value)]
    return values.index(find(numbers)) if numbers else 0


def _names(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of the metrics, those on training batches first."""
    found = {name: None for line in lines for name, x in line.items() if name != "step" and isinstance(x, int | float)}
    return sorted(found, key=lambda name: name.startswith(HELD_OUT))
