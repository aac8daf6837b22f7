"""Sweeps of many configurations, most of which are like one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def by_kind(kinds: Mapping[str, str], values: Sequence[Any]) -> list[tuple[str, Any]]:
    """Crosses the first configuration of each kind with every value, and each other one with one of them, in turn.

    Configurations of one kind differ in sizes and choices, and not in what a value of the other parameter meets.

    Args:
      kinds: the kind of each configuration.
      values: those of the other parameter.

    Returns:
      (configuration, value) of each test.

    Examples:
      >>> by_kind({"gpt2": "decoder", "llama": "decoder", "bert": "encoder"}, [2, 4])
      [('gpt2', 2), ('gpt2', 4), ('llama', 4), ('bert', 2), ('bert', 4)]
    """
    first = {kind: name for name, kind in reversed(kinds.items())}
    return [
        (name, value)
        for i, (name, kind) in enumerate(kinds.items())
        for j, value in enumerate(values)
        if name == first[kind] or i % len(values) == j
    ]
