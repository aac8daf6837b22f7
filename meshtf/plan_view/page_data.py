"""The data of the page: everything that its script needs, small enough to be part of the page."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from typing import Any

from meshtf.call_sites import place_text
from meshtf.lowering.report.operation_records import MemoryMoment
from meshtf.lowering.report.report import Report
from meshtf.plan_view.operation_groups import OperationGroup, operation_groups, rest_of
from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf.plan_view.remarks import remarks

_MOST_TENSORS, _MOST_OPERATIONS, _MOST_MOMENTS = 150, 3000, 900
_MOST_PROCESSES = 1 << 14

_KINDS = ("weights", "slots", "feeds", "gradients", "activations", "temporary")


def page_data(title: str, layouts: Sequence[PlannedLayout], *, plan_again: str = "") -> dict[str, Any]:
    """Returns the data of all layouts.

    `plan_again` is the address to which a served page sends other settings to plan.
    """
    planned = [layout for layout in layouts if layout.report is not None]
    machine = next((layout.machine for layout in planned if layout.machine is not None), None)
    name, _, rest = title.partition(": ")
    source = "Written by meshtf-plan. Everything is in this page; nothing is loaded from anywhere."
    if machine is not None:
        source += f" Times are predicted from figures of {machine.name}: {machine.source}."
    return {
        "title": name,
        "subtitle": rest.partition(", mesh [")[0],
        "source": source,
        "plan_again": plan_again,
        "machine": None if machine is None else {"name": machine.name, "overlaps": machine.overlaps},
        "layouts": [layout_data(layout) for layout in layouts],
    }


def layout_data(planned: PlannedLayout) -> dict[str, Any]:
    """Returns the data of one layout. For an impossible layout, these are its settings and the error."""
    settings = dataclasses.asdict(planned.settings)
    report = planned.report
    if report is None:
        return {"label": planned.label, "settings": settings, "error": planned.error}
    groups = operation_groups(report, planned.prediction)
    moments, unit, end = _timeline(planned, report)
    return {
        "label": planned.label,
        "settings": settings,
        "mesh": report.mesh,
        "axis_parts": report.axis_parts,
        "cores": report.cores,
        "processes": report.processes,
        "process_of_core": report.process_of_core[:_MOST_PROCESSES],
        "totals": _totals(planned, report),
        "memory": {kind: max((getattr(m, kind) for m in report.memory_timeline), default=0) for kind in _KINDS},
        "peak_place": _peak_place(report),
        "remarks": remarks(report),
        "search": planned.search,
        "timeline": moments,
        "timeline_unit": unit,
        "timeline_end": end,
        "tensors": _tensors(report),
        "traffic": _traffic(planned, report),
        "operations": [_operation(group) for group in _few_enough(groups)],
    }


def _peak_place(report: Report) -> str:
    memory = report.memory
    if not memory.peak_operation:
        return "no operation"
    return f"{memory.peak_label}, {place_text(memory.peak_filename, memory.peak_line)}"


def _totals(planned: PlannedLayout, report: Report) -> dict[str, Any]:
    prediction = planned.prediction
    return {
        "seconds": None if prediction is None else prediction.seconds,
        "parts": None if prediction is None else dataclasses.asdict(prediction.parts),
        "hidden": 0.0 if prediction is None else prediction.hidden_communication,
        "tokens_per_second": None if prediction is None else prediction.tokens_per_second,
        "share_of_peak": None if prediction is None else prediction.share_of_peak,
        "peak_bytes": report.memory.peak,
        "memory_bytes": None if prediction is None else prediction.memory_bytes,
        "flops": report.flops_per_core,
        "repeated_flops": report.repeated_flops_per_core,
        "bytes_sent": report.bytes_sent_per_core,
        "bytes_between_processes": report.bytes_between_processes,
        "collectives": sum(c.times for c in report.collectives),
    }


def _timeline(planned: PlannedLayout, report: Report) -> tuple[list[dict[str, Any]], str, float]:
    """Returns the moments in order, with their start times, in seconds if predicted, else as numbers of operations."""
    times = None if planned.prediction is None else planned.prediction.operations
    begun = [
        (number if times is None else times[moment.operation].begins, moment)
        for number, moment in enumerate(report.memory_timeline)
    ]
    begun.sort(key=lambda b: b[0])
    if begun and begun[0][0] > 0:  # weights, slots and feeds are in memory from the beginning
        begun.insert(0, (0.0, dataclasses.replace(begun[0][1], gradients=0, activations=0, temporary=0)))
    end = float(len(begun)) if planned.prediction is None else planned.prediction.seconds
    shown = [_moment(begins, moment, report) for begins, moment in _thinned(begun)]
    return shown, "operations" if times is None else "seconds", end


def _thinned(begun: Sequence[tuple[float, MemoryMoment]]) -> list[tuple[float, MemoryMoment]]:
    """Reduces the number of moments. It keeps the one with most memory among neighbours, so no peak is lost."""
    size = max(1, math.ceil(len(begun) / _MOST_MOMENTS))
    parts = [begun[i : i + size] for i in range(0, len(begun), size)]
    return [(part[0][0], max(part, key=lambda b: b[1].total)[1]) for part in parts]


def _moment(begins: float, moment: MemoryMoment, report: Report) -> dict[str, Any]:
    record = report.operations[moment.operation]
    kinds = {kind: getattr(moment, kind) for kind in _KINDS}
    place = place_text(record.filename, record.line) if record.filename else "no line of yours"
    return {"begins": begins, "name": record.label, "place": place, **kinds}


def _tensors(report: Report) -> list[dict[str, Any]]:
    """Returns the largest tensors. Tensors of the same shape and layout whose names differ only in numbers are one."""
    found: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    given = {record.name for record in (*report.variables, *report.feeds)}
    kinds = (("variable", report.variables), ("input", report.feeds), ("activation", report.tensors))
    for kind, records in kinds:
        for record in records:
            if kind == "activation" and record.name in given:
                continue
            row = found.setdefault(
                (kind, re.sub(r"_?\d+", "", record.name), record.layout, record.dtype),
                {
                    "name": record.name,
                    "count": 0,
                    "kind": kind,
                    "dtype": record.dtype,
                    "dims": [_dimension(text) for text in record.layout.split(" ") if text],
                    "bytes_per_core": record.bytes_per_core,
                    "bytes_whole": record.bytes_whole,
                },
            )
            row["count"] += 1
    return sorted(found.values(), key=lambda row: -row["bytes_per_core"])[:_MOST_TENSORS]


def _dimension(text: str) -> tuple[str, int, list[str]]:
    """Parses `batch:8/rows+cols` into name, size and mesh axes. No name contains a colon or a space."""
    name, _, rest = text.partition(":")
    size, _, axes = rest.partition("/")
    return name, int(size), axes.split("+") if axes else []


def _traffic(planned: PlannedLayout, report: Report) -> list[dict[str, Any]]:
    if planned.prediction is None:
        rows = [(t.kind, t.axes, "", t.count, t.bytes_sent, None, None) for t in report.traffic]
    else:
        found = planned.prediction.collectives
        rows = [(c.kind, c.axes, c.links, c.count, c.bytes_sent, c.seconds, c.exposed_seconds) for c in found]
    names = ("kind", "axes", "links", "times", "bytes", "seconds", "exposed")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _few_enough(groups: Sequence[OperationGroup]) -> list[OperationGroup]:
    """Returns all groups, if they are few enough. Otherwise joins all but the most expensive, by category."""
    if len(groups) <= _MOST_OPERATIONS:
        return list(groups)
    ordered = sorted(groups, key=lambda g: -(g.flops + g.bytes_sent if g.seconds is None else g.seconds))
    return [*ordered[:_MOST_OPERATIONS], *rest_of(ordered[_MOST_OPERATIONS:])]


def _operation(group: OperationGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "kind": group.kind,
        "category": group.category,
        "phase": group.phase,
        "file": place_text(group.filename, group.line).rpartition(":")[0] if group.filename else "no line of yours",
        "place": group.place,
        "dtype": group.dtype,
        "axes": group.axes,
        "times": group.times,
        "flops": group.flops,
        "bytes": group.bytes_moved,
        "sent": group.bytes_sent,
        "seconds": group.seconds,
        "hidden": group.hidden_seconds,
    }
