"""Writes JSON that follows the standard. Python's own writer emits NaN and Infinity, which other readers refuse."""

from __future__ import annotations

import json
import math
from typing import Any

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def json_text(
    value: Any,
    *,
    indent: int | None = None,
    sort_keys: bool = False,
    separators: tuple[str, str] | None = None,
    ensure_ascii: bool = True,
) -> str:
    """Returns a value as JSON. A number that is not finite becomes the text "NaN", "Infinity" or "-Infinity".

    Args:
      value: dictionaries and lists, whose leaves are texts, numbers, truth values or None.
      indent: the number of columns by which each level is indented. None: all on one line.
      sort_keys: whether to sort keys alphabetically.
      separators: the separators between entries, and between a key and its value.
      ensure_ascii: whether to write characters outside of ASCII as escapes.

    Raises:
      TypeError: if JSON cannot hold the value.
    """
    return json.dumps(
        _finite(value),
        indent=indent,
        sort_keys=sort_keys,
        separators=separators,
        ensure_ascii=ensure_ascii,
        allow_nan=False,
    )


def with_numbers(value: Any) -> Any:
    """Returns a value that was read from JSON. Converts the texts "NaN", "Infinity" and "-Infinity" back to numbers."""
    if isinstance(value, dict):
        return {name: with_numbers(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_numbers(each) for each in value]
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {_finite(name): _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
