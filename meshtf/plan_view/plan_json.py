"""Plans as JSON, for machines: a list, with a report, a prediction or an error for each layout."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from typing import Any

from meshtf.plan_view.planned_layout import PlannedLayout


def plan_json(layouts: Sequence[PlannedLayout], *, full: bool) -> str:
    """`full` has every tensor, every operation and memory over time, too. Infinite numbers are null."""
    return json.dumps([_plain(_one(layout, full)) for layout in layouts], indent=1, allow_nan=False)


def _one(planned: PlannedLayout, full: bool) -> dict[str, Any]:
    data: dict[str, Any] = {"label": planned.label, **dataclasses.asdict(planned.settings)}
    if planned.report is None:
        return data | {"error": planned.error}
    data |= {"headline": planned.headline, "report": planned.report.to_dict(tensors=full, operations=full)}
    if planned.prediction is not None:
        data["prediction"] = planned.prediction.to_dict(operations=full)
    return data


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {name: _plain(value) for name, value in x.items()}
    if isinstance(x, list | tuple):
        return [_plain(value) for value in x]
    return None if isinstance(x, float) and not math.isfinite(x) else x
