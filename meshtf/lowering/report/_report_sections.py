"""The parts of a report for people: the costs of the program, then tables in which equal lines stand once."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from meshtf.call_sites import place_text
from meshtf.errors import counted
from meshtf.lowering.report._records import (
    CollectiveRecord,
    LayersRecord,
    LoopRecord,
    MemoryRecord,
    RepeatedWorkRecord,
    TensorRecord,
)
from meshtf.lowering.report.text_table import Column, Row, Section, bytes_text, flops_text

if TYPE_CHECKING:
    from meshtf.lowering.report.report import Report

T = TypeVar("T")

_NEGLIGIBLE = 0.01
"""The share of all repeated work below which a line is joined with others. The joint line still gives the FLOPs."""


def headline(report: Report) -> str:
    """Returns the program, the cores and the mesh, in a line."""
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
        _traffic,
        _between_processes,
        _buckets,
        _collectives,
        _gathers_for_want,
        _repeated_updates,
        _repeated_work,
        _whole_tensors,
        _padding,
        _variables,
        _feeds_and_results,
    ]
    return [section for make in [*makers, *([_tensors] if tensors else [])] for section in make(report)]


def totals(report: Report) -> list[tuple[str, str]]:
    """Returns the layouts and the costs of the whole program, each with its name."""
    memory, repeated = report.memory, report.repeated_flops_per_core
    whole = sum(v.bytes_whole for v in report.variables)
    rows = [("layout", report.layout or "(nothing is split)")]
    if report.parameter_layout != report.layout:
        rows.append(("parameter layout", report.parameter_layout or "(nothing is split)"))
    if report.activation_layout:
        rows.append(("activation layout", report.activation_layout))
    peak = f"{_trimmed(bytes_text(memory.peak))} per core"
    if memory.peak_operation:
        peak += f", in {memory.peak_label}, {place_text(memory.peak_filename, memory.peak_line)}"
    work = f"{_trimmed(flops_text(report.flops_per_core))} per core"
    if repeated:
        share = repeated / max(1, report.flops_per_core)
        work += f", {_trimmed(flops_text(repeated))} ({share:.0%}) of it repeated on other cores"
    variables = f"{_trimmed(bytes_text(memory.variables))} per core, {_trimmed(bytes_text(whole))} in all"
    rows += [("variables", variables), ("peak memory", peak), ("work", work), ("communication", _sent(report))]
    return rows


def _memory(report: Report) -> list[Section]:
    columns = [Column(title, True) for title in ("weights", "slots", "gradients", "activations", "inputs", "peak")]
    rows = [(*_memory_row(report.memory), "as planned")]
    if report.memory_without_sharding is not None:
        rows.append((*_memory_row(report.memory_without_sharding), "if every core did all of its updates"))
    return _section("memory per core; of gradients and activations the most", [*columns, Column("")], rows)


def _memory_row(m: MemoryRecord) -> tuple[str, ...]:
    return tuple(map(bytes_text, (m.weights, m.slots, m.gradients, m.activations, m.feeds, m.peak)))


def _pipelines(report: Report) -> list[Section]:
    titles = ("bubble", "stages", "micro-batches", "rounds", "steps", "times", "sent a step")
    columns = [*(Column(title, True) for title in titles), Column("mesh axes"), Column("operation", keeps="end")]
    rows: list[Row] = []
    for lines in _grouped(report.pipelines, lambda p: (p.filename, p.line)):
        rows.append(f"{place_text(lines[0].filename, lines[0].line)} in {lines[0].function}")
        for p in lines:
            sizes = (f"{n}" for n in (p.stages, p.microbatches, p.rounds, p.steps, p.times))
            rows.append((f"{p.bubble:.1%}", *sizes, bytes_text(p.bytes_per_step), "+".join(p.axes), p.label))
    title = "pipelines; the bubble is the share of stage-steps that compute nothing useful"
    return _section(title, columns, rows)


def _kept_of_pipelines(report: Report) -> list[Section]:
    columns = [Column("all steps", True), Column("in a stage", True), Column("operation", keeps="end")]
    rows = [
        (bytes_text(p.bytes_kept), bytes_text(p.bytes_kept_in_stage), p.label)
        for p in report.pipelines
        if p.bytes_kept is not None and p.bytes_kept_in_stage is not None
    ]
    title = "activations kept for the backward pass of pipelines, per core: of all steps; in a stage, of one step"
    return _section(title, columns, rows)


def _compiled(record: LoopRecord) -> str:
    if record.refusal:
        return f"no: {record.refusal}"
    return "as one function for all cores" if record.is_joint else "as one function"


def _loops(report: Report) -> list[Section]:
    columns = [Column("operation", keeps="end"), Column("line", keeps="end"), Column("compiled", keeps="start")]
    rows = [(r.label, place_text(r.filename, r.line), _compiled(r)) for r in report.loops]
    return _section("loops that ask to be compiled by XLA", columns, rows)


def _layers(report: Report) -> list[Section]:
    columns = [Column("layers", True), Column("operation", keeps="end"), Column("line", keeps="end")]
    columns.append(Column("unrolled", keeps="start"))
    rows = [(str(r.layers), r.label, place_text(r.filename, r.line), _unrolled(r)) for r in report.layers]
    return _section("loops over layers", columns, rows)


def _unrolled(record: LayersRecord) -> str:
    return f"no: {record.refusal}" if record.refusal else "yes"


def _repeated_updates(report: Report) -> list[Section]:
    groups = _grouped(report.repeated_updates, lambda u: (_key(u.name), u.reason))
    columns = [Column("times", True), Column("variable", keeps="end"), Column("because", keeps="start")]
    rows = [(f"{len(group)}", _pattern([u.name for u in group]), group[0].reason) for group in groups]
    return _section("weights that every core updates whole", columns, rows)


def _sent(report: Report) -> str:
    count = sum(c.times for c in report.collectives)
    if not count:
        return "none: no core sends anything to another"
    sent = f"{_trimmed(bytes_text(report.bytes_sent_per_core))} sent per core, in {_counted(count, 'collective')}"
    if report.processes == 1:
        return sent
    return f"{sent}; {_trimmed(bytes_text(report.bytes_between_processes))} from each process to others"


def _traffic(report: Report) -> list[Section]:
    columns = [Column("kind"), Column("mesh axes"), Column("times", True), Column("sent per core", True)]
    rows = [(t.kind, "+".join(t.axes), f"{t.count}", bytes_text(t.bytes_sent)) for t in report.traffic]
    return _section("communication by kind and mesh axes", columns, rows)


def _between_processes(report: Report) -> list[Section]:
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
        for group in _grouped(crossing, lambda c: (c.kind, c.axes, c.stages))
    ]
    title = "communication between processes; across: the mesh axes that cross them"
    return _section(title, columns, rows)


def _collectives(report: Report) -> list[Section]:
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
    for lines in _most_first(_grouped(asked, lambda a: (a[0].filename, a[0].line)), _bytes_asked):
        first, _ = lines[0]
        rows.append(f"{place_text(first.filename, first.line)} in {first.function}")
        rows += [
            _collective_row(group, report.processes) for group in _most_first(_grouped(lines, _alike), _bytes_asked)
        ]
    title = "every collective, by the line that asked for it; bytes sent per core"
    if report.processes > 1:
        title += ", and by each process to others"
    return _section(title, columns, rows)


_Asked: TypeAlias = tuple[CollectiveRecord, str]
"""A collective that an operation asked for, and the name of the bucket in which it travels, or an empty text."""


def _asked(c: CollectiveRecord, bucket: str) -> list[_Asked]:
    return [(member, bucket) for member in c.members] if c.members else [(c, "")]


def _bucket_names(report: Report) -> dict[int, str]:
    """Returns the names of the buckets, by the number of the collective."""
    buckets = [i for i, c in enumerate(report.collectives) if c.members]
    return {i: f"bucket {number}" for number, i in enumerate(buckets, 1)}


def _buckets(report: Report) -> list[Section]:
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
        operations = list(dict.fromkeys(_pattern(group) for group in _grouped(_operations(bucket), _key)))
        cells = (name.split()[1], bytes_text(bucket.bytes_sent), f"{bucket.times}", _kind(bucket))
        rows.append((*cells, "+".join(bucket.axes), f"{len(bucket.members)}", ", ".join(operations)))
    return _section("buckets: small collectives that travel as one", columns, rows)


def _operations(bucket: CollectiveRecord) -> list[str]:
    return [member.label for member in bucket.members]


def _alike(asked: _Asked) -> Hashable:
    c, bucket = asked
    return (c.kind, c.axes, _key(c.label), c.layout, c.result_layout, c.dtype, bucket)


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
        _pattern([c.label for c, _ in group]),
        f"{_change(first)} {first.dtype}",
    )


def _gathers_for_want(report: Report) -> list[Section]:
    columns = [Column("sent per core", True), Column("times", True), Column("line", keeps="end"), Column("because")]
    rows = [
        (bytes_text(c.bytes_sent), f"{c.times}", place_text(c.filename, c.line), c.why)
        for c in sorted(report.gathers_for_want, key=lambda c: -c.bytes_sent)
    ]
    return _section("gathered for want of a way to work on slices", columns, rows)


def _repeated_work(report: Report) -> list[Section]:
    def alike(w: RepeatedWorkRecord) -> Hashable:
        return (w.axes, w.filename, w.line)

    groups = _most_first(_grouped(report.repeated_work, alike), lambda w: w.flops)
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
    return _section("work repeated on several cores (views, slices and constants left out)", columns, rows)


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


def _whole_tensors(report: Report) -> list[Section]:
    columns = [Column("per core", True), Column("times", True), Column("name", keeps="end")]
    columns += [Column("because", keeps="start")]
    groups = _grouped(report.whole_tensors, lambda t: (_key(t.name), _key(t.why), t.shape, t.dtype))
    rows = [
        (bytes_text(sum(t.bytes for t in group)), f"{len(group)}", _pattern([t.name for t in group]), group[0].why)
        for group in _most_first(groups, lambda t: t.bytes)
    ]
    return _section("held whole by every core, above 1% of the peak", columns, rows)


def _padding(report: Report) -> list[Section]:
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
    return _section("padding: what cores hold and compute beyond the ends of dimensions", columns, rows)


def _variables(report: Report) -> list[Section]:
    groups = _grouped(report.variables, lambda v: (_key(v.name), v.layout, v.dtype))
    groups = _most_first(groups, lambda v: v.bytes_per_core)
    return _section("variables", _TENSOR_COLUMNS, [_tensor_row(group) for group in groups])


def _feeds_and_results(report: Report) -> list[Section]:
    feeds, results = ([_tensor_row([t]) for t in tensors] for tensors in (report.feeds, report.results))
    return [
        *_section("inputs, as each core is handed its part", _TENSOR_COLUMNS, feeds),
        *_section(_results_title(report), _TENSOR_COLUMNS, results),
    ]


def _results_title(report: Report) -> str:
    where = "the first core" if report.processes == 1 else "the first core of each process"
    return f"results, put together on {where}"


def _tensors(report: Report) -> list[Section]:
    return _section("every tensor", _TENSOR_COLUMNS, [_tensor_row([t]) for t in report.tensors])


_TENSOR_COLUMNS = (
    Column("per core", True),
    Column("in all", True),
    Column("times", True),
    Column("dtype"),
    Column("name", keeps="end"),
    Column("layout", keeps="start"),
)


def _tensor_row(group: Sequence[TensorRecord]) -> tuple[str, ...]:
    return (
        bytes_text(sum(t.bytes_per_core for t in group)),
        bytes_text(sum(t.bytes_whole for t in group)),
        f"{len(group)}",
        group[0].dtype,
        _pattern([t.name for t in group]),
        f"[{group[0].layout}]",
    )


def _section(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> list[Section]:
    return [Section(title, tuple(columns), tuple(rows))] if rows else []


def _grouped(records: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return list(groups.values())


def _most_first(groups: list[list[T]], cost: Callable[[T], int]) -> list[list[T]]:
    return sorted(groups, key=lambda group: -sum(map(cost, group)))


def _key(name: str) -> str:
    """Returns a name without its numbers: the same for `layer_000/einsum_1` and `layer_012/einsum`."""
    return re.sub(r"_?\d+", "", name)


def _pattern(names: Sequence[str]) -> str:
    """Returns the name, or a pattern for several names, such as `layer*/einsum`."""
    return names[0] if len(set(names)) == 1 else re.sub(r"_?\d+", "*", max(names, key=len))


def _change(c: CollectiveRecord) -> str:
    """Returns the layout and its change, such as `[batch:8/rows heads:4 -> batch heads/rows]`."""
    before, after = c.layout.split(), c.result_layout.split()
    changed = [re.sub(r":\d+", "", new) for old, new in zip(before, after, strict=True) if new != old]
    return f"[{' '.join([*before, *(['->', *changed] if changed else [])])}]"


def _trimmed(text: str) -> str:
    return text.rstrip()


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
