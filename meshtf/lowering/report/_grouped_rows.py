"""Rows of a report's tables: records that are alike share a row, and the costliest rows come first.

The products of layers 0 to 11, `layer_000/einsum_1` to `layer_011/einsum_1`, are one row, named `layer*/einsum*`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from meshtf.lowering.report.text_table import Column, Row, Section

T = TypeVar("T")


def section(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> list[Section]:
    return [Section(title, tuple(columns), tuple(rows))] if rows else []


def grouped(records: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    groups: dict[Hashable, list[T]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return list(groups.values())


def most_first(groups: list[list[T]], cost: Callable[[T], int]) -> list[list[T]]:
    return sorted(groups, key=lambda group: -sum(map(cost, group)))


def without_numbers(name: str) -> str:
    """Returns a name without its numbers: the same for `layer_000/einsum_1` and `layer_012/einsum`."""
    return re.sub(r"_?\d+", "", name)


def name_pattern(names: Sequence[str]) -> str:
    """Returns the name, or a pattern for several names, such as `layer*/einsum`."""
    return names[0] if len(set(names)) == 1 else re.sub(r"_?\d+", "*", max(names, key=len))
