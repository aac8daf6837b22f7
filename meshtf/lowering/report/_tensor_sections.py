"""The tables of a report about tensors: those held whole, padding, variables, inputs and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from meshtf.lowering.report._grouped_rows import grouped, most_first, name_pattern, section, without_numbers
from meshtf.lowering.report._records import TensorRecord
from meshtf.lowering.report.text_table import Column, Section, bytes_text, flops_text

if TYPE_CHECKING:
    from meshtf.lowering.report.report import Report


def whole_tensors(report: Report) -> list[Section]:
    columns = [Column("per core", True), Column("times", True), Column("name", keeps="end")]
    columns += [Column("because", keeps="start")]
    groups = grouped(
        report.whole_tensors, lambda t: (without_numbers(t.name), without_numbers(t.why), t.shape, t.dtype)
    )
    rows = [
        (bytes_text(sum(t.bytes for t in group)), f"{len(group)}", name_pattern([t.name for t in group]), group[0].why)
        for group in most_first(groups, lambda t: t.bytes)
    ]
    return section("held whole by every core, above 1% of the peak", columns, rows)


def padding(report: Report) -> list[Section]:
    titles = ("share", "work per core", "of variables")
    columns = [*(Column(title, True) for title in titles), Column("dimension"), Column("held as")]
    rows = [
        (
            f"{p.share:.1%}",
            flops_text(p.flops),
            bytes_text(p.bytes),
            f"{p.dimension}:{p.size}/{'+'.join(p.axes)}",
            f"{p.parts} parts of {p.padded // p.parts}",
        )
        for p in report.padding
    ]
    return section("padding: what cores hold and compute beyond the ends of dimensions", columns, rows)


_TENSOR_COLUMNS = (
    Column("per core", True),
    Column("in all", True),
    Column("times", True),
    Column("dtype"),
    Column("name", keeps="end"),
    Column("layout", keeps="start"),
)


def variables(report: Report) -> list[Section]:
    groups = grouped(report.variables, lambda v: (without_numbers(v.name), v.layout, v.dtype))
    groups = most_first(groups, lambda v: v.bytes_per_core)
    return section("variables", _TENSOR_COLUMNS, [_tensor_row(group) for group in groups])


def feeds_and_results(report: Report) -> list[Section]:
    feeds, results = ([_tensor_row([t]) for t in tensors] for tensors in (report.feeds, report.results))
    return [
        *section("inputs, as each core is handed its part", _TENSOR_COLUMNS, feeds),
        *section(_results_title(report), _TENSOR_COLUMNS, results),
    ]


def _results_title(report: Report) -> str:
    where = "the first core" if report.processes == 1 else "the first core of each process"
    return f"results, put together on {where}"


def every_tensor(report: Report) -> list[Section]:
    return section("every tensor", _TENSOR_COLUMNS, [_tensor_row([t]) for t in report.tensors])


def _tensor_row(group: Sequence[TensorRecord]) -> tuple[str, ...]:
    return (
        bytes_text(sum(t.bytes_per_core for t in group)),
        bytes_text(sum(t.bytes_whole for t in group)),
        f"{len(group)}",
        group[0].dtype,
        name_pattern([t.name for t in group]),
        f"[{group[0].layout}]",
    )
