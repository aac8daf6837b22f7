"""Plans as JSON, for machines: a list, with a report, a prediction or an error for each layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from meshtf.plan_view.planned_layout import PlannedLayout
from meshtf_programs.strict_json import json_text


def plan_json(layouts: Sequence[PlannedLayout], *, full: bool) -> str:
    """Returns the plans as JSON. `full` adds every tensor, every operation and memory over time."""
    return json_text([_one(layout, full) for layout in layouts], indent=1)


def _one(planned: PlannedLayout, full: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"label": planned.label, **dataclasses.asdict(planned.settings)}
    if planned.report is None:
        return data | {"error": planned.error}
    data |= {"headline": planned.headline, "report": planned.report.to_dict(tensors=full, operations=full)}
    if planned.prediction is not None:
        data["prediction"] = planned.prediction.to_dict(operations=full)
    return data
