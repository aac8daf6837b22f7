"""Hints for misspelt names, if meshtf, which has the same function, is not imported."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Returns a hint `; did you mean "x"?` for a misspelt name, or an empty string."""
    matches = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return f'; did you mean "{matches[0]}"?' if matches else ""
