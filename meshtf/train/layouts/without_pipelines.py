"""Models in the forms in which programs decode: without pipelines, and without places for which tokens compete."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar

from meshtf.layers import PipelineSchedule
from meshtf.layers.moe import Capacity

T = TypeVar("T")


def without_pipelines(model: T) -> T:
    """Returns a model in which no part has a pipeline. It computes the same, and reads the same checkpoints.

    Decoding computes the layers one by one, so the programs that share its variables do as well. They also need no
    batch that divides into micro-batches.

    Args:
      model: a dataclass, whose parts may be in its fields, and in lists there. Anything else is returned as it is.
    """
    found: Any = _changed(model, _is_pipeline)
    return found


def text_by_text(model: T) -> T:
    """Returns a model without pipelines, in which no expert drops a token.

    Decoding drops none. If scores or an encoder did, a text's result would depend on the longest text beside it, since
    experts have places in proportion to a row's length.

    Args:
      model: as for `without_pipelines`.
    """
    found: Any = _changed(model, lambda *part: _is_pipeline(*part) or _may_drop(*part))
    return found


def _changed(value: Any, is_left_out: Callable[[Any, str, Any], bool]) -> Any:
    """Returns a value without some fields of its dataclasses, for which `is_left_out(dataclass, name, value)` holds."""
    if isinstance(value, list | tuple):
        parts = [_changed(part, is_left_out) for part in value]
        is_same = all(new is old for new, old in zip(parts, value, strict=True))
        return value if is_same else type(value)(parts)
    if isinstance(value, type) or not dataclasses.is_dataclass(value):
        return value
    whole: Any = value
    own = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole) if field.init}
    new = {name: None if is_left_out(whole, name, part) else _changed(part, is_left_out) for name, part in own.items()}
    changes = {name: part for name, part in new.items() if part is not own[name]}
    return dataclasses.replace(whole, **changes) if changes else whole


def _is_pipeline(_: Any, name: str, part: Any) -> bool:
    return name == "pipeline" and isinstance(part, PipelineSchedule)


def _may_drop(whole: Any, name: str, part: Any) -> bool:
    """Whether a field limits the places of experts. Experts that choose their tokens cannot do without."""
    return name == "capacity" and isinstance(part, Capacity) and whole.router.is_causal
