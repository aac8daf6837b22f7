"""Numbers of one page agree: parts are the step, operations are their parts, collectives are what is sent."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from meshtf.plan_view import page_data as module
from meshtf.plan_view.page_data import layout_data
from meshtf.plan_view.plan_json import plan_json
from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf.plan_view.terminal import print_summary
from tests.plan_view.small_plans import TOKENS, plans_of_one_machine
from tests.plan_view.visible_numbers import Shown, number, numbers, total


@pytest.fixture(scope="module")
def plans() -> list[PlannedLayout]:
    return [plan for page in plans_of_one_machine() for plan in page]


def test_the_step_is_the_sum_of_its_parts_and_of_its_operations(plans: list[PlannedLayout]) -> None:
    for data in map(layout_data, plans):
        _adds_up(data)
    hidden = [layout_data(plan)["totals"]["hidden"] for plan in plans]
    assert hidden[0] > 0, "something is to be behind other work, or this test shows little"
    assert hidden[4] == 0, "on v3 nothing is"
    assert layout_data(plans[2])["totals"]["parts"]["bubble"] > 0
    assert layout_data(plans[5])["totals"]["parts"]["start"] == 3e-5


def test_so_it_is_where_operations_are_too_many(plans: list[PlannedLayout], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_OPERATIONS", 5)
    data = layout_data(plans[0])
    assert "all others" in [row["name"] for row in data["operations"]]
    _adds_up(data)


def test_so_it_is_in_json(plans: list[PlannedLayout]) -> None:
    for data in json.loads(plan_json(plans, full=True)):
        found = data["prediction"]
        exposed = sum(operation["exposed_seconds"] for operation in found["operations"])
        assert found["parts"]["start"] + exposed == pytest.approx(found["seconds"])
        communication = sum(collective["exposed_seconds"] for collective in found["collectives"])
        assert communication == pytest.approx(found["parts"]["communication"], abs=1e-9 * found["seconds"])
        hidden = sum(collective["seconds"] for collective in found["collectives"]) - communication
        assert hidden == pytest.approx(found["hidden_communication"], abs=1e-9 * found["seconds"])


def test_so_it_is_in_the_terminal(plans: list[PlannedLayout], capsys: pytest.CaptureFixture[str]) -> None:
    """Parts are the step, shares are the operations', kinds of memory are the peak."""
    for plan in plans:
        print_summary(plan)
        text = capsys.readouterr().out
        step, peak = (numbers(re.findall(rf"{title} +([^,]*)", text)[0])[0] for title in ("step", "peak memory"))
        parts = re.findall(
            rf"(?:{'|'.join(layout_data(plan)['totals']['parts'])}) ([\d.]+ \w+)", text.partition("besides")[0]
        )
        assert _adds_to([number(part) for part in parts], step), text
        for amount, share in re.findall(r"^ +([\d.]+ [mu]?s) +(\d+)%", text, re.MULTILINE):
            # In whole percents, and times of three digits and no trailing zeros.
            assert number(amount).value / step.value == pytest.approx(int(share) / 100, abs=0.005 + 0.01), text
        memory = text.partition("peak memory")[2].partition("work  ")[0]
        kinds = re.findall(r"(?:weights|slots|feeds|gradients|activations|temporary|earlier) ([\d.]+ \w+)", memory)
        assert total([number(kind) for kind in kinds]).agrees(peak), text


def _adds_to(parts: list[Shown], whole: Shown) -> bool:
    """Each of three digits, some of which may be zeros that are not there."""
    return abs(sum(part.value for part in parts) - whole.value) <= 0.005 * (whole.value + sum(p.value for p in parts))


def _adds_up(data: dict[str, Any]) -> None:
    totals, rows, traffic = data["totals"], data["operations"], data["traffic"]
    step, parts = totals["seconds"], totals["parts"]
    assert sum(parts.values()) == pytest.approx(step)
    assert sum(row["seconds"] for row in rows) == pytest.approx(step)
    for part, seconds in parts.items():
        own = [row["seconds"] for row in rows if row["category"] == part]
        assert sum(own) == pytest.approx(seconds, abs=1e-9 * step), part
    assert {row["category"] for row in rows} <= set(parts)
    assert sum(row["exposed"] for row in traffic) == pytest.approx(parts["communication"], abs=1e-9 * step)
    assert sum(row["seconds"] - row["exposed"] for row in traffic) == pytest.approx(totals["hidden"], abs=1e-9 * step)
    assert sum(row["hidden"] for row in rows) == pytest.approx(totals["hidden"], abs=1e-9 * step)
    assert min(row["hidden"] for row in rows) >= -1e-9 * step
    assert sum(row["flops"] for row in rows) == totals["flops"]
    assert sum(row["sent"] for row in rows) == totals["bytes_sent"] == sum(row["bytes"] for row in traffic)
    assert sum(row["times"] for row in traffic) == totals["collectives"]
    assert totals["tokens_per_second"] * step == pytest.approx(TOKENS)
    assert data["timeline_end"] == step
    assert data["timeline"][0]["begins"] == 0
    most = max(sum(moment[kind] for kind in data["memory"]) for moment in data["timeline"])
    assert most <= totals["peak_bytes"] <= totals["memory_bytes"]
