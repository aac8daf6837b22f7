"""Operations of a report, those that are alike together: of layers that differ in their number alone there is one."""

from __future__ import annotations

import dataclasses
import os
import re

from meshtf.costs import Prediction
from meshtf.layout import Axes
from meshtf.lowering.report.operation_records import OperationRecord
from meshtf.lowering.report.report import Report

_CATEGORIES = {"product": "products", "collective": "communication", "reduction": "elementwise"}
_HAVE_NO_COST = frozenset({"view", "loop", "branch"})


@dataclasses.dataclass(slots=True)
class OperationGroup:
    """Operations of one name but for numbers, on one line of the user's, that do the same.

    Attributes:
      name: as `decoder/layer*/einsum`, where there are several.
      category: products, elementwise, communication, update or other.
      phase: forward, gradients or update.
      filename, line, function: the user's.
      dtype: of the first input.
      axes: of collectives.
      times: of all of them, in a step.
      flops, bytes_moved, bytes_sent: of each core, all times together.
      seconds: predicted, all times together; None without a machine.
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

    @property
    def place(self) -> str:
        """File and line, and the function."""
        return f"{place_text(self.filename, self.line)} in {self.function}" if self.filename else "no line of yours"


def operation_groups(report: Report, prediction: Prediction | None) -> list[OperationGroup]:
    """In the order in which the first of each stands; views and what holds other operations are left out."""
    groups: dict[tuple[object, ...], OperationGroup] = {}
    numbers: dict[tuple[object, ...], set[str]] = {}
    for number, record in enumerate(report.operations):
        if record.category in _HAVE_NO_COST:
            continue
        key = _key(record)
        if key not in groups:
            groups[key] = _new_group(record, None if prediction is None else 0.0)
        _add(groups[key], record, None if prediction is None else prediction.operations[number].seconds)
        numbers.setdefault(key, set()).add(record.name)
    for key, group in groups.items():
        if len(numbers[key]) > 1:
            group.name = re.sub(r"_?\d+", "*", max(numbers[key], key=len))
    return list(groups.values())


def place_text(filename: str, line: int) -> str:
    """The line, its file relative to the current folder where it is inside, else the last two parts of its path."""
    relative = os.path.relpath(filename)
    if relative.startswith(os.pardir):
        relative = os.sep.join(filename.split(os.sep)[-2:])
    return f"{relative}:{line}"


def _key(record: OperationRecord) -> tuple[object, ...]:
    name = re.sub(r"_?\d+", "", record.name)
    return (name, record.kind, _category(record), record.filename, record.line, record.dtype, record.axes)


def _category(record: OperationRecord) -> str:
    if record.is_update and record.category != "collective":
        return "update"
    return _CATEGORIES.get(record.category, record.category)


def _new_group(record: OperationRecord, seconds: float | None) -> OperationGroup:
    phase = "gradients" if record.name.startswith("gradients") else "forward"
    return OperationGroup(
        name=record.name,
        kind=record.kind,
        category=_category(record),
        phase="update" if record.is_update else phase,
        filename=record.filename,
        line=record.line,
        function=record.function,
        dtype=record.dtype,
        axes=record.axes,
        seconds=seconds,
    )


def _add(group: OperationGroup, record: OperationRecord, seconds: float | None) -> None:
    group.times += record.times
    group.flops += record.times * record.flops
    group.bytes_moved += record.times * (record.bytes_read + record.bytes_written)
    group.bytes_sent += record.times * record.bytes_sent
    if seconds is not None and group.seconds is not None:
        group.seconds += seconds
