"""JSON that every reader takes, and that comes back."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from meshtf_programs.strict_json import json_text, with_numbers

TREE = Path(__file__).parents[2]

INTERNAL = ("meshtf/mesh_impl/tpu/", "meshtf/lowering/ahead/compilation.py")
"""Files and values that only Python reads again, of one version: between meshtf and a process of its own."""


def test_numbers_that_are_not_finite() -> None:
    value = {"a": [math.nan, (math.inf, -math.inf)], "b": {"c": 0.1, "d": None, "e": True, "f": "NaN"}, 3: 1e400}
    text = json_text(value)
    assert text == (
        '{"a": ["NaN", ["Infinity", "-Infinity"]], "b": {"c": 0.1, "d": null, "e": true, "f": "NaN"}, "3": "Infinity"}'
    )
    back = with_numbers(json.loads(text, parse_constant=pytest.fail))
    assert math.isnan(back["a"][0])
    assert (back["a"][1], back["3"], back["b"]["c"]) == ([math.inf, -math.inf], math.inf, 0.1)


def test_what_is_finite_is_as_python_writes_it() -> None:
    value = {"b": [1, 2.5, "\u00e9"], "a": {}}
    assert json_text(value) == json.dumps(value)
    how = {"indent": 2, "sort_keys": True, "separators": (",", ":"), "ensure_ascii": False}
    assert json_text(value, **how) == json.dumps(value, **how)
    with pytest.raises(TypeError):
        json_text({"x": object()})


def test_nothing_else_writes_json() -> None:
    """Whoever calls `json.dump` by itself writes NaN for others to stumble over."""
    sources = [p for folder in ("meshtf", "meshtf_programs", "layers", "models") for p in (TREE / folder).rglob("*.py")]
    writers = {str(p.relative_to(TREE)) for p in sources if re.search(r"json\.dumps?\(", p.read_text())}
    own = {path for path in writers if not path.startswith(INTERNAL)}
    assert own == {"meshtf_programs/strict_json.py"}
