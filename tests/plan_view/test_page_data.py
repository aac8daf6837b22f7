"""What the page is given: the report's numbers, tensors in their dimensions, and no more than a page can hold."""

from __future__ import annotations

import dataclasses
import json

import pytest

from meshtf.plan_view import page_data as module
from meshtf.plan_view.page_data import layout_data, page_data
from meshtf.plan_view.planned_layout import PlannedLayout


def test_numbers_are_those_of_the_report_and_of_the_prediction(layouts: list[PlannedLayout]) -> None:
    planned, data = layouts[0], layout_data(layouts[0])
    assert planned.report is not None
    assert planned.prediction is not None
    assert data["totals"]["peak_bytes"] == planned.report.memory.peak
    assert (
        data["totals"]["bytes_sent"] == planned.report.bytes_sent_per_core == sum(t["bytes"] for t in data["traffic"])
    )
    assert data["totals"]["seconds"] == data["timeline_end"] == planned.prediction.seconds
    assert sum(data["totals"]["parts"].values()) == pytest.approx(planned.prediction.seconds)
    assert data["timeline_unit"] == "seconds"
    begins = [moment["begins"] for moment in data["timeline"]]
    assert begins == sorted(begins)
    assert data["settings"]["layout"] == "batch:rows;hidden:cols"
    (images,) = (t for t in data["tensors"] if t["name"] == "images")
    assert images["kind"] == "input"
    assert all(isinstance(size, int) and isinstance(axes, list) for _, size, axes in images["dims"])
    split = [t for t in data["tensors"] if ["hidden", ["cols"]] in [[n, a] for n, _, a in t["dims"]]]
    assert split
    json.dumps(page_data("a: b", layouts), allow_nan=False)


def test_a_layout_that_is_not_possible_has_its_error(layouts: list[PlannedLayout]) -> None:
    data = layout_data(layouts[2])
    assert '"nowhere"' in data["error"]
    assert "is from --compare" in data["error"]
    assert data["settings"]["layout"] == "batch:nowhere"


def test_without_a_machine_time_is_counted_in_operations(layouts: list[PlannedLayout]) -> None:
    data = layout_data(dataclasses.replace(layouts[0], prediction=None, machine=None))
    assert data["timeline_unit"] == "operations"
    assert data["totals"]["seconds"] is None
    assert data["timeline_end"] == len(data["timeline"])
    assert all(row["seconds"] is None for row in [*data["traffic"], *data["operations"]])


def test_of_many_moments_the_highest_stay(layouts: list[PlannedLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    report, seconds = layouts[0].report, sorted(row["seconds"] for row in layout_data(layouts[0])["operations"])
    assert report is not None
    assert seconds[0] == 0  # a collective that is all behind other work
    most = max(m.total for m in report.memory_timeline)
    monkeypatch.setattr(module, "_MOST_MOMENTS", 7)
    monkeypatch.setattr(module, "_MOST_OPERATIONS", 5)
    data = layout_data(layouts[0])
    kinds = ("weights", "slots", "feeds", "gradients", "activations", "temporary")
    assert len(data["timeline"]) <= 7
    assert max(sum(moment[kind] for kind in kinds) for moment in data["timeline"]) == most
    are_others = [row["name"] == "all others" for row in data["operations"]]
    assert are_others == sorted(are_others)
    assert are_others.count(False) == 5
    assert [row["seconds"] for row in data["operations"][:5]] == seconds[:-6:-1]
    assert len({row["category"] for row in data["operations"][5:]}) == are_others.count(True) > 1


@pytest.mark.parametrize(
    ("text", "dimension"),
    [
        ("batch:8", ("batch", 8, [])),
        ("batch:8/rows+cols.0", ("batch", 8, ["rows", "cols.0"])),
        ("(iterations):4", ("(iterations)", 4, [])),
        ("a/b:3/rows", ("a/b", 3, ["rows"])),
        ("a/b:3/host/chip+cols", ("a/b", 3, ["host/chip", "cols"])),
    ],
)
def test_dimensions_are_read_from_layouts(text: str, dimension: tuple[str, int, list[str]]) -> None:
    assert module._dimension(text) == dimension
