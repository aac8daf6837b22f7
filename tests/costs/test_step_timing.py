"""One model of overlap: each second of a step belongs to one operation, also in loops, pipelines and branches."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from meshtf.costs import OperationTime, load_machine, step_timing
from meshtf.costs.placement import Placement
from meshtf.costs.step_timing import StepTiming, part_of_step
from meshtf.dimension import convert_to_shape
from meshtf.lowering.report.operation_records import OperationRecord

pytestmark = pytest.mark.quick

START = 0.25


def _record(category: Any, seconds: int = 0, needs: Sequence[int] = (), **more: Any) -> OperationRecord:
    """An operation that takes so many seconds, which stand in its FLOPs."""
    known = {"times": 1, "flops": seconds, "needs": tuple(needs)} | more
    return OperationRecord("name", "kind", category, "file.py", 1, "function", **known)


def _timed(records: Sequence[OperationRecord], monkeypatch: pytest.MonkeyPatch, *, overlaps: bool = True) -> StepTiming:
    monkeypatch.setattr(step_timing, "operation_seconds", lambda record, _: float(record.flops))
    shape = convert_to_shape("rows:2")
    assert shape is not None
    machine = dataclasses.replace(load_machine("v5e"), overlaps=overlaps)
    timing = StepTiming(records, Placement(machine, shape, (0, 0)), START)
    assert START + sum(t.exposed_seconds for t in timing.operations) == timing.seconds
    return timing


def _exposed(timing: StepTiming) -> list[float]:
    return [time.exposed_seconds for time in timing.operations]


def test_a_collective_is_exposed_for_as_long_as_the_core_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on from 1 s to 5 s, beside work until 3 s; the core waits for the rest."""
    records = [
        _record("product", 1),
        _record("collective", 4, [0]),
        _record("elementwise", 2),
        _record("product", 1, [1]),
    ]
    timing = _timed(records, monkeypatch)
    assert timing.seconds == START + 1 + 4 + 1
    assert timing.operations[1] == OperationTime(1, START + 1, 4, 2)
    assert _exposed(timing) == [1, 2, 2, 1]
    serial = _timed(records, monkeypatch, overlaps=False)
    assert serial.seconds == START + 8
    assert _exposed(serial) == [1, 4, 2, 1]


def test_waiting_is_of_the_collectives_that_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two, until 4 s and 7 s: 2 s of work hide the first but for its last second; all of the second is waited for, and
    so is a third, at the end."""
    records = [
        _record("product", 1),
        _record("collective", 3, [0]),
        _record("collective", 3, [0]),
        _record("elementwise", 2),
        _record("product", 1, [2]),
        _record("collective", 2, [4]),
    ]
    timing = _timed(records, monkeypatch)
    assert timing.seconds == START + 1 + 3 + 3 + 1 + 2
    assert _exposed(timing) == [1, 1, 3, 2, 1, 2]


def test_rounds_of_a_loop_are_those_of_its_operations_but_for_a_bubble(monkeypatch: pytest.MonkeyPatch) -> None:
    """A round takes 4 s, of which 2 s are waiting; eight rounds, a quarter of them of no use. Around it a loop of 2."""
    records = [
        _record("loop"),
        _record("loop", inside=0, times=2, bubble=0.25),
        _record("collective", 3, inside=1, times=16),
        _record("product", 1, inside=1, times=16),
        _record("elementwise", 1, [2], inside=1, times=16),
    ]
    timing = _timed(records, monkeypatch)
    assert timing.seconds == START + 2 * 8 * 4
    assert _exposed(timing) == [0, 2 * 8 * 4 / 4, 12 * 2, 12, 12]
    assert [time.seconds for time in timing.operations] == [64, 64, 36, 12, 12]
    assert [part_of_step(record) for record in records[1:]] == ["bubble", "communication", "products", "elementwise"]


def test_a_loop_that_never_runs_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a loop in it."""
    records = [
        _record("loop"),
        _record("loop", inside=0, times=0),
        _record("product", 2, inside=1, times=0),
    ]
    timing = _timed(records, monkeypatch)
    assert timing.seconds == START
    assert _exposed(timing) == [0, 0, 0]


def test_a_branch_takes_its_longer_way(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        _record("branch"),
        _record("product", 1, inside=0),
        _record("loop", inside=0, alternative=1),
        _record("product", 2, inside=2, times=3),
    ]
    timing = _timed(records, monkeypatch)
    assert timing.seconds == START + 6
    assert [(t.seconds, t.exposed_seconds) for t in timing.operations] == [(6, 0), (0, 0), (6, 0), (6, 6)]


def test_work_on_next_values_is_update_and_what_they_need_sent_is_communication() -> None:
    assert part_of_step(_record("product", is_update=True)) == "update"
    assert part_of_step(_record("collective", is_update=True)) == "communication"
    assert part_of_step(_record("other")) == part_of_step(_record("reduction")) == "elementwise"
