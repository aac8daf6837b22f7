"""What a layout might do better is said where there is something, and only there."""

from __future__ import annotations

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.plan_view.page_data import layout_data
from meshtf.plan_view.planned_layout import PlannedLayout, Settings
from meshtf.plan_view.remarks import remarks

pytestmark = pytest.mark.quick

BATCH, HIDDEN = mtf.Dimension("batch", 10), mtf.Dimension("hidden", 64)


def _planned(layout: str) -> PlannedLayout:
    def double(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.relu(x + x)

    inputs = {"x": mtf.TensorSpec([BATCH, HIDDEN], tf.float32)}
    report = mtf.function(double, mtf.PlanMeshImpl("rows:4", layout), inputs=inputs).report()
    return PlannedLayout("a test", Settings("rows:4", layout, "", "", 10), report=report)


def test_padding_and_what_is_held_whole_are_said() -> None:
    padded = _planned("batch:rows")
    assert padded.report is not None
    assert any(text.startswith("padding: batch:10 in 4 parts, ") for text in remarks(padded.report))
    whole = _planned("")
    assert whole.report is not None
    (text,) = remarks(whole.report)
    assert text.startswith("held whole by every core: ")
    assert layout_data(whole)["remarks"] == [text]


def test_of_a_layout_that_splits_everything_nothing_is_said() -> None:
    split = _planned("hidden:rows")
    assert split.report is not None
    assert remarks(split.report) == []
