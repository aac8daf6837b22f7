"""The parts of a report for people: the costs of the program, then tables in which equal lines are joined."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from meshtf.call_sites import place_text
from meshtf.errors import counted
from meshtf.lowering.report._communication_sections import (
    between_processes,
    buckets,
    collectives,
    gathers_for_want,
    traffic,
)
from meshtf.lowering.report._grouped_rows import grouped, most_first, name_pattern, section, without_numbers
from meshtf.lowering.report._records import LayersRecord, LoopRecord, MemoryRecord, RepeatedWorkRecord
from meshtf.lowering.report._tensor_sections import every_tensor, feeds_and_results, padding, variables, whole_tensors
from meshtf.lowering.report.text_table import Column, Row, Section, bytes_text, flops_text

if TYPE_CHECKING:
    from meshtf.lowering.report.report import Report


_NEGLIGIBLE = 0.01
"""The share of all repeated work below which a line is joined with others. The joint line still gives the FLOPs."""


def headline(report: Report) -> str:
    """Returns one line with the program, the cores and the mesh."""
    mesh, parts = (" ".join(f"{name}:{size}" for name, size in axes) for axes in (report.mesh, report.axis_parts))
    cores = "1 core" if report.cores == 1 else f"{report.cores} cores"
    if report.processes > 1:
        cores += f" of {report.processes} processes"
    return f'program "{report.program}" on {cores}, mesh [{mesh}]{parts and f", in parts [{parts}]"}'


def sections(report: Report, *, tensors: bool) -> list[Section]:
    """Returns all tables that are not empty. `tensors` adds the table of every tensor."""
    makers = [
        _memory,
        _pipelines,
        _kept_of_pipelines,
        _loops,
        _layers,
        traffic,
        between_processes,
        buckets,
        collectives,
        gathers_for_want,
        _repeated_updates,
        _repeated_work,
        whole_tensors,
        padding,
        variables,
        feeds_and_results,
    ]
    return [section for make in [*makers, *([every_tensor] if tensors else [])] for section in make(report)]


def totals(report: Report) -> list[tuple[str, str]]:
    """Returns the layouts and the costs of the whole program, each with its name."""
    memory, repeated = report.memory, report.repeated_flops_per_core
    whole = sum(v.bytes_whole for v in report.variables)
    rows = [("layout", report.layout or "(nothing is split)")]
    if report.parameter_layout != report.layout:
        rows.append(("parameter layout", report.parameter_layout or "(nothing is split)"))
    if report.activation_layout:
        rows.append(("activation layout", report.activation_layout))
    peak = f"{bytes_text(memory.peak).rstrip()} per core"
    if memory.peak_operation:
        peak += f", in {memory.peak_label}, {place_text(memory.peak_filename, memory.peak_line)}"
    work = f"{flops_text(report.flops_per_core).rstrip()} per core"
    if repeated:
        share = repeated / max(1, report.flops_per_core)
        work += f", {flops_text(repeated).rstrip()} ({share:.0%}) of it repeated on other cores"
    variables = f"{bytes_text(memory.variables).rstrip()} per core, {bytes_text(whole).rstrip()} in all"
    rows += [("variables", variables), ("peak memory", peak), ("work", work), ("communication", _sent(report))]
    return rows


def _memory(report: Report) -> list[Section]:
    columns = [Column(title, True) for title in ("weights", "slots", "gradients", "activations", "inputs", "peak")]
    rows = [(*_memory_row(report.memory), "as planned")]
    if report.memory_without_sharding is not None:
        rows.append((*_memory_row(report.memory_without_sharding), "if every core did all of its updates"))
    return section("memory per core; of gradients and activations the most", [*columns, Column("")], rows)


def _memory_row(m: MemoryRecord) -> tuple[str, ...]:
    return tuple(map(bytes_text, (m.weights, m.slots, m.gradients, m.activations, m.feeds, m.peak)))


def _pipelines(report: Report) -> list[Section]:
    titles = ("bubble", "stages", "micro-batches", "rounds", "steps", "times", "sent a step")
    columns = [*(Column(title, True) for title in titles), Column("mesh axes"), Column("operation", keeps="end")]
    rows: list[Row] = []
    for lines in grouped(report.pipelines, lambda p: (p.filename, p.line)):
        rows.append(f"{place_text(lines[0].filename, lines[0].line)} in {lines[0].function}")
        for p in lines:
            sizes = (f"{n}" for n in (p.stages, p.microbatches, p.rounds, p.steps, p.times))
            rows.append((f"{p.bubble:.1%}", *sizes, bytes_text(p.bytes_per_step), "+".join(p.axes), p.label))
    title = "pipelines; the bubble is the share of stage-steps that compute nothing useful"
    return section(title, columns, rows)


def _kept_of_pipelines(report: Report) -> list[Section]:
    columns = [Column("all steps", True), Column("in a stage", True), Column("operation", keeps="end")]
    rows = [
        (bytes_text(p.bytes_kept), bytes_text(p.bytes_kept_in_stage), p.label)
        for p in report.pipelines
        if p.bytes_kept is not None and p.bytes_kept_in_stage is not None
    ]
    title = "activations kept for the backward pass of pipelines, per core: of all steps; in a stage, of one step"
    return section(title, columns, rows)


def _compiled(record: LoopRecord) -> str:
    if record.refusal:
        return f"no: {record.refusal}"
    return "as one function for all cores" if record.is_joint else "as one function"


def _loops(report: Report) -> list[Section]:
    columns = [Column("operation", keeps="end"), Column("line", keeps="end"), Column("compiled", keeps="start")]
    rows = [(r.label, place_text(r.filename, r.line), _compiled(r)) for r in report.loops]
    return section("loops that ask to be compiled by XLA", columns, rows)


def _layers(report: Report) -> list[Section]:
    columns = [Column("layers", True), Column("operation", keeps="end"), Column("line", keeps="end")]
    columns.append(Column("unrolled", keeps="start"))
    rows = [(str(r.layers), r.label, place_text(r.filename, r.line), _unrolled(r)) for r in report.layers]
    return section("loops over layers", columns, rows)


def _unrolled(record: LayersRecord) -> str:
    return f"no: {record.refusal}" if record.refusal else "yes"


def _repeated_updates(report: Report) -> list[Section]:
    groups = grouped(report.repeated_updates, lambda u: (without_numbers(u.name), u.reason))
    columns = [Column("times", True), Column("variable", keeps="end"), Column("because", keeps="start")]
    rows = [(f"{len(group)}", name_pattern([u.name for u in group]), group[0].reason) for group in groups]
    return section("weights that every core updates whole", columns, rows)


def _sent(report: Report) -> str:
    count = sum(c.times for c in report.collectives)
    if not count:
        return "none: no core sends anything to another"
    sent = f"{bytes_text(report.bytes_sent_per_core).rstrip()} sent per core, in {counted(count, 'collective')}"
    if report.processes == 1:
        return sent
    return f"{sent}; {bytes_text(report.bytes_between_processes).rstrip()} from each process to others"


def _repeated_work(report: Report) -> list[Section]:
    def alike(w: RepeatedWorkRecord) -> Hashable:
        return (w.axes, w.filename, w.line)

    groups = most_first(grouped(report.repeated_work, alike), lambda w: w.flops)
    least = _NEGLIGIBLE * report.repeated_flops_per_core
    shown = [group for group in groups if sum(w.flops for w in group) >= least]
    rest = [w for group in groups[len(shown) :] for w in group]
    columns = [
        Column("work per core", True),
        Column("done by", True),
        Column("along"),
        Column("operations", True),
        Column("line", keeps="end"),
        Column("the largest", keeps="end"),
    ]
    rows = [_repeated_row(group) for group in shown]
    if rest:
        rows.append((flops_text(sum(w.flops for w in rest)), "", "", f"{len(rest)}", "elsewhere", ""))
    return section("work repeated on several cores (views, slices and constants left out)", columns, rows)


def _repeated_row(group: Sequence[RepeatedWorkRecord]) -> tuple[str, ...]:
    largest = max(group, key=lambda w: w.flops)
    return (
        flops_text(sum(w.flops for w in group)),
        f"{counted(largest.times, 'core')}",
        "+".join(largest.axes),
        f"{len(group)}",
        place_text(largest.filename, largest.line),
        largest.label,
    )
