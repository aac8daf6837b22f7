"""Makes the tables and pictures of docs/benchmarks.md, and puts them into the page."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.measuring.side_by_side import Row, as_table
from benchmarks.workloads.workload import Workload

CONTENDED = 0.05
"""The least share of all processors for which a table reports that other programs disturbed the run."""

_SECTION = """\
{head}. {rounds} rounds of {steps} steps. {load}

{table}

![Time of a step as a ratio to the first row's]({picture})
"""


def section(head: str, workload: Workload, rows: Mapping[str, Row], others: float | None, picture: str) -> str:
    """A section with a workload's table.

    `head` is the machine and the versions. `others` is the share of the processors that other programs used.
    """
    return _SECTION.format(
        head=head,
        rounds=len(next(iter(rows.values())).ratios),
        steps=workload.steps,
        load=load(others),
        table=as_table(rows),
        picture=picture,
    )


def load(others: float | None) -> str:
    """The load from other programs, and its meaning for the numbers, as text."""
    if others is None:
        return "What else the machine did is not known."
    if others < CONTENDED:
        return f"Other programs had {others:.0%} of the processors."
    return (
        f"**Contended**: other programs had {others:.0%} of the processors; ratios and CPU times are to be read, "
        "milliseconds and first calls not."
    )


def drawn(title: str, rows: Mapping[str, Row]) -> Figure:
    """Draws a bar for each program: the median of its ratios, with the least and the largest."""
    figure = Figure(figsize=(8, 0.35 * len(rows) + 1.2), layout="constrained")
    plot = figure.subplots()
    medians = [statistics.median(row.ratios) for row in rows.values()]
    below = [m - min(row.ratios) for m, row in zip(medians, rows.values(), strict=True)]
    above = [max(row.ratios) - m for m, row in zip(medians, rows.values(), strict=True)]
    colors = ["tab:blue" if name.startswith("meshtf") else "tab:gray" for name in rows]
    plot.barh(list(rows), medians, xerr=[below, above], color=colors, ecolor="black", capsize=2)
    plot.axvline(1, color="black", linewidth=0.5)
    plot.invert_yaxis()
    plot.set(title=title, xlabel=f"time of a step / {next(iter(rows))}")
    return figure


def put(page: Path, name: str, text: str) -> None:
    """Puts a text between the comments `<!-- name -->` and `<!-- end of name -->` of a page."""
    old = page.read_text()
    new, found = _place(name).subn(lambda _: f"<!-- {name} -->\n\n{text}\n<!-- end of {name} -->", old)
    if found != 1:
        raise SystemExit(f"{page} has {found} places {_place(name).pattern!r}, and must have one")
    page.write_text(new)


def has_place(page: Path, name: str) -> bool:
    return _place(name).search(page.read_text()) is not None


def _place(name: str) -> re.Pattern[str]:
    return re.compile(f"<!-- {name} -->.*?<!-- end of {name} -->", re.DOTALL)


def place_of(workload: str, *, is_plain: bool) -> str:
    """The name of a workload's table and picture."""
    return f"plain_cpu_{workload}" if is_plain else workload
