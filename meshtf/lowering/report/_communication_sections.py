"""The tables of a report about communication: by mesh axes, between processes, by line, and in buckets."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from meshtf.call_sites import place_text
from meshtf.lowering.report._grouped_rows import grouped, most_first, name_pattern, section, without_numbers
from meshtf.lowering.report._records import CollectiveRecord
from meshtf.lowering.report.text_table import Column, Row, Section, bytes_text

if TYPE_CHECKING:
    from meshtf.lowering.report.report import Report


def traffic(report: Report) -> list[Section]:
    columns = [Column("kind"), Column("mesh axes"), Column("times", True), Column("sent per core", True)]
    rows = [(t.kind, "+".join(t.axes), f"{t.count}", bytes_text(t.bytes_sent)) for t in report.traffic]
    return section("communication by kind and mesh axes", columns, rows)


def between_processes(report: Report) -> list[Section]:
    titles = ("times", "sent per process")
    columns = [
        Column("kind"),
        Column("mesh axes"),
        *(Column(t, True) for t in titles),
        Column("across"),
        Column("stages"),
    ]
    crossing = [c for c in report.collectives if c.process_axes]
    rows = [
        (
            group[0].kind,
            "+".join(group[0].axes),
            f"{sum(c.times for c in group)}",
            bytes_text(sum(c.bytes_between_processes for c in group)),
            "+".join(group[0].process_axes),
            group[0].stages,
        )
        for group in grouped(crossing, lambda c: (c.kind, c.axes, c.stages))
    ]
    title = "communication between processes; across: the mesh axes that cross them"
    return section(title, columns, rows)


_Asked: TypeAlias = tuple[CollectiveRecord, str]
"""A collective of an operation, and the name of the bucket in which it travels, or an empty text."""


def collectives(report: Report) -> list[Section]:
    columns = [
        Column("sent", True),
        Column("times", True),
        Column("kind"),
        Column("mesh axes"),
        Column("operation", keeps="end"),
        Column("tensor", keeps="start"),
    ]
    if report.processes > 1:
        columns.insert(1, Column("by process", True))
    rows: list[Row] = []
    asked = [a for i, c in enumerate(report.collectives) for a in _asked(c, _bucket_names(report).get(i, ""))]
    for lines in most_first(grouped(asked, lambda a: (a[0].filename, a[0].line)), _bytes_asked):
        first, _ = lines[0]
        rows.append(f"{place_text(first.filename, first.line)} in {first.function}")
        rows += [_collective_row(group, report.processes) for group in most_first(grouped(lines, _alike), _bytes_asked)]
    title = "every collective, by the line that asked for it; bytes sent per core"
    if report.processes > 1:
        title += ", and by each process to others"
    return section(title, columns, rows)


def _asked(c: CollectiveRecord, bucket: str) -> list[_Asked]:
    return [(member, bucket) for member in c.members] if c.members else [(c, "")]


def _bucket_names(report: Report) -> dict[int, str]:
    """Returns the names of the buckets, by the number of the collective."""
    buckets = [i for i, c in enumerate(report.collectives) if c.members]
    return {i: f"bucket {number}" for number, i in enumerate(buckets, 1)}


def buckets(report: Report) -> list[Section]:
    columns = [
        Column("bucket"),
        Column("sent", True),
        Column("times", True),
        Column("kind"),
        Column("mesh axes"),
        Column("members", True),
        Column("of operations", keeps="start"),
    ]
    rows = []
    for i, name in _bucket_names(report).items():
        bucket = report.collectives[i]
        operations = list(dict.fromkeys(name_pattern(group) for group in grouped(_operations(bucket), without_numbers)))
        cells = (name.split()[1], bytes_text(bucket.bytes_sent), f"{bucket.times}", _kind(bucket))
        rows.append((*cells, "+".join(bucket.axes), f"{len(bucket.members)}", ", ".join(operations)))
    return section("buckets: small collectives that travel as one", columns, rows)


def _operations(bucket: CollectiveRecord) -> list[str]:
    return [member.label for member in bucket.members]


def _alike(asked: _Asked) -> Hashable:
    c, bucket = asked
    return (c.kind, c.axes, without_numbers(c.label), c.layout, c.result_layout, c.dtype, bucket)


def _bytes_asked(asked: _Asked) -> int:
    return asked[0].bytes_sent


def _kind(c: CollectiveRecord) -> str:
    return c.kind if c.reduction in (None, "add") else f"{c.kind} ({c.reduction})"


def _collective_row(group: Sequence[_Asked], processes: int) -> tuple[str, ...]:
    first, bucket = group[0]
    between = [bytes_text(sum(c.bytes_between_processes for c, _ in group))] if processes > 1 else []
    return (
        bytes_text(sum(c.bytes_sent for c, _ in group)),
        *between,
        bucket or f"{sum(c.times for c, _ in group)}",
        _kind(first),
        "+".join(first.axes),
        name_pattern([c.label for c, _ in group]),
        f"{_change(first)} {first.dtype}",
    )


def gathers_for_want(report: Report) -> list[Section]:
    columns = [Column("sent per core", True), Column("times", True), Column("line", keeps="end"), Column("because")]
    rows = [
        (bytes_text(c.bytes_sent), f"{c.times}", place_text(c.filename, c.line), c.why)
        for c in sorted(report.gathers_for_want, key=lambda c: -c.bytes_sent)
    ]
    return section("gathered for want of a way to work on slices", columns, rows)


def _change(c: CollectiveRecord) -> str:
    """Returns the layout and its change, such as `[batch:8/rows heads:4 -> batch heads/rows]`."""
    before, after = c.layout.split(), c.result_layout.split()
    changed = [re.sub(r":\d+", "", new) for old, new in zip(before, after, strict=True) if new != old]
    return f"[{' '.join([*before, *(['->', *changed] if changed else [])])}]"
