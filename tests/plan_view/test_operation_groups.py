"""Operations that are alike are one group, and nothing that costs is lost."""

from __future__ import annotations

import pytest

from meshtf.plan_view.operation_groups import operation_groups, rest_of
from meshtf.plan_view.planned_layout import PlannedLayout


def test_groups_have_all_work_all_bytes_and_all_seconds(layouts: list[PlannedLayout]) -> None:
    report, prediction = layouts[0].report, layouts[0].prediction
    assert report is not None
    assert prediction is not None
    groups = operation_groups(report, prediction)
    costly = [(o, t) for o, t in zip(report.operations, prediction.operations, strict=True) if o.category != "view"]
    assert sum(g.flops for g in groups) == sum(o.flops * o.times for o, _ in costly) == report.flops_per_core
    assert sum(g.bytes_sent for g in groups) == report.bytes_sent_per_core
    assert sum(g.seconds or 0 for g in groups) == pytest.approx(prediction.seconds)
    assert sum(g.hidden_seconds for g in groups) == pytest.approx(prediction.hidden_communication)
    assert sum((g.seconds or 0) + g.hidden_seconds for g in groups) == pytest.approx(sum(t.seconds for _, t in costly))
    assert len(groups) < len(costly)
    assert {g.category for g in groups} >= {"products", "elementwise", "communication", "update"}
    assert {g.phase for g in groups} == {"forward", "gradients", "update"}


def test_the_rest_is_one_group_of_each_category(layouts: list[PlannedLayout]) -> None:
    report = layouts[0].report
    assert report is not None
    groups = operation_groups(report, layouts[0].prediction)
    rest = rest_of(groups)
    assert len(rest) == len({g.category for g in groups}) == len({g.category for g in rest})
    for name in ("times", "flops", "bytes_moved", "bytes_sent"):
        assert sum(getattr(g, name) for g in rest) == sum(getattr(g, name) for g in groups)
    assert sum(g.seconds or 0 for g in rest) == pytest.approx(sum(g.seconds or 0 for g in groups))
    assert {g.place for g in rest} == {"no line of yours"}


def test_without_a_machine_no_group_has_a_time(layouts: list[PlannedLayout]) -> None:
    report = layouts[0].report
    assert report is not None
    groups = operation_groups(report, None)
    assert all(g.seconds is None for g in groups)
    update = next(g for g in groups if g.phase == "update" and "*" in g.name)
    assert update.times > 1
    assert update.place.startswith("optimize/adam.py:")
