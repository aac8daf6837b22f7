"""JSON for machines: every layout with its report, or its error."""

from __future__ import annotations

import json

from meshtf.plan_view.plan_json import plan_json
from meshtf.plan_view.planned_layout import PlannedLayout


def test_every_layout_has_its_report_or_its_error(layouts: list[PlannedLayout]) -> None:
    first, data, failed, smaller = json.loads(plan_json(layouts, full=False))
    assert first["report"]["memory"]["peak"] > 0
    assert first["prediction"]["seconds"] > 0
    assert "operations" not in first["report"]
    assert "tensors" not in first["report"]
    assert data["layout"] == "batch:rows+cols"
    assert "report" not in failed
    assert "nowhere" in failed["error"]
    assert (smaller["mesh_shape"], smaller["batch_size"]) == ("rows:2;cols:1", 32)
    full = json.loads(plan_json(layouts[:1], full=True))[0]
    assert len(full["report"]["operations"]) == len(full["prediction"]["operations"])
