"""Groups similar operations of a report: operations of layers that differ only in number form one group."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from meshtf.call_sites import place_text
from meshtf.costs import OperationTime, Prediction, part_of_step
from meshtf.layout import Axes
from meshtf.lowering.report.operation_records import OperationRecord
from meshtf.lowering.report.report import Report

_HAVE_NO_COST = frozenset({"view", "loop", "branch"})
_START = "start"


@dataclasses.dataclass(slots=True)
class OperationGroup:
    """Operations of the same kind, from the same line, whose names differ only in numbers.

    Attributes:
      name: their name, such as `decoder/layer*/einsum` if there are several.
      category: the part of the step: products, elementwise, communication, update, bubble or start.
      phase: forward, gradients, update or start.
      filename, line, function: the line of the operations.
      dtype: the dtype of the first input.
      axes: the mesh axes of collectives.
      times: how often they all run together in a step.
      flops, bytes_moved, bytes_sent: totals per core over all runs.
      seconds: predicted exposed seconds. The sum over all groups is the time of a step. None without a machine.
      hidden_seconds: additional seconds of collectives that overlap with other work.
    """

    name: str
    kind: str
    category: str
    phase: str
    filename: str
    line: int
    function: str
    dtype: str
    axes: Axes
    times: int = 0
    flops: int = 0
    bytes_moved: int = 0
    bytes_sent: int = 0
    seconds: float | None = None
    hidden_seconds: float = 0.0

    @property
    def place(self) -> str:
        """The file, the line and the function."""
        return f"{place_text(self.filename, self.line)} in {self.function}" if self.filename else "no line of yours"


def operation_groups(report: Report, prediction: Prediction | None) -> list[OperationGroup]:
    """Returns the groups in the order of their first operations. With a machine, the step's start comes first.

    Views and operations that contain others are left out, except pipelines, which have the time of their bubble.
    """
    groups: dict[tuple[object, ...], OperationGroup] = {}
    numbers: dict[tuple[object, ...], set[str]] = {}
    for number, record in enumerate(report.operations):
        time = None if prediction is None else prediction.operations[number]
        if record.category in _HAVE_NO_COST and not (time is not None and time.exposed_seconds):
            continue
        key = _key(record)
        if key not in groups:
            groups[key] = _new_group(record, None if time is None else 0.0)
        _add(groups[key], record, time)
        numbers.setdefault(key, set()).add(record.label)
    for key, group in groups.items():
        if len(numbers[key]) > 1:
            # Operations of several layers are one group, whose name has `*` in place of numbers.
            group.name = re.sub(r"_?\d+", "*", max(numbers[key], key=len))
    return [*_start(prediction), *groups.values()]


def rest_of(groups: Iterable[OperationGroup]) -> list[OperationGroup]:
    """Joins all groups of one category into one group, in the order of the groups."""
    rest: dict[str, OperationGroup] = {}
    for group in groups:
        if group.category not in rest:
            own = dataclasses.replace(group, name="all others", kind="several", phase="all others", dtype="", axes=())
            rest[group.category] = dataclasses.replace(own, filename="", line=0, function="")
            continue
        whole = rest[group.category]
        for name in ("times", "flops", "bytes_moved", "bytes_sent", "hidden_seconds"):
            setattr(whole, name, getattr(whole, name) + getattr(group, name))
        if whole.seconds is not None and group.seconds is not None:
            whole.seconds += group.seconds
    return list(rest.values())


def _key(record: OperationRecord) -> tuple[object, ...]:
    name = re.sub(r"_?\d+", "", record.label)
    return (name, record.kind, part_of_step(record), record.filename, record.line, record.dtype, record.axes)


def _start(prediction: Prediction | None) -> list[OperationGroup]:
    """Returns a group for the time before the first operation, or none if that is 0."""
    if prediction is None or not prediction.parts.start:
        return []
    seconds = prediction.parts.start
    return [OperationGroup("start of the step", _START, _START, _START, "", 0, "", "", (), 1, seconds=seconds)]


def _new_group(record: OperationRecord, seconds: float | None) -> OperationGroup:
    phase = "gradients" if record.is_gradient else "forward"
    return OperationGroup(
        name=record.label,
        kind=record.kind,
        category=part_of_step(record),
        phase="update" if record.is_update else phase,
        filename=record.filename,
        line=record.line,
        function=record.function,
        dtype=record.dtype,
        axes=record.axes,
        seconds=seconds,
    )


def _add(group: OperationGroup, record: OperationRecord, time: OperationTime | None) -> None:
    group.times += record.times
    group.flops += record.times * record.flops
    group.bytes_moved += record.times * (record.bytes_read + record.bytes_written)
    group.bytes_sent += record.times * record.bytes_sent
    if time is not None and group.seconds is not None:
        group.seconds += time.exposed_seconds
        if record.category == "collective":
            group.hidden_seconds += time.seconds - time.exposed_seconds
