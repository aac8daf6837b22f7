"""Models whose layers are computed one after the other, also if a training has them in the stages of a pipeline."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

from meshtf.layers import PipelineSchedule

T = TypeVar("T")


def without_pipelines(model: T) -> T:
    """Returns a model in which no part has a pipeline. It computes the same, and reads the same checkpoints.

    Decoding computes the layers one by one, so the programs that share its variables do as well. They also need no
    batch that divides into micro-batches.

    Args:
      model: a dataclass, whose parts may be in its fields, and in lists there. Anything else is returned as it is.
    """
    found: Any = _changed(model)
    return found


def _changed(value: Any) -> Any:
    if isinstance(value, list | tuple):
        parts = [_changed(part) for part in value]
        is_same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if is_same else type(value)(parts)
    if isinstance(value, type) or not dataclasses.is_dataclass(value):
        return value
    whole: Any = value
    own = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole) if field.init}
    new = {name: None if _is_pipeline(name, part) else _changed(part) for name, part in own.items()}
    changes = {name: part for name, part in new.items() if part is not own[name]}
    return dataclasses.replace(whole, **changes) if changes else whole


def _is_pipeline(name: str, part: Any) -> bool:
    return name == "pipeline" and isinstance(part, PipelineSchedule)
