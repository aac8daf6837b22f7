"""Shapes as text: `d_model (heads d_kv)` has two dimensions. The second one joins two axes in row-major order.

In `(heads + queries d_kv)` the axes after the plus are one part of the elements at each index of `heads`. Each rule
that names this tensor has one part, in the order of the rules. `(+ heads d_kv)` is a part of the whole dimension.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

import numpy as np

from meshtf.checkpoint._box import Box

Region = Mapping[str, tuple[int, int]]
"""The range of each axis: its first index, and the index after its last one."""

_TOKEN = re.compile(r"[a-z_][a-z_0-9]*|[()+1]|\S")


class RuleFault(ValueError):  # noqa: N818  # whoever reads the file of rules tells of it
    """An error in a rule, in words."""


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of a dimension that several rules share.

    Attributes:
      outer: the number of axes before the plus. All rules share them, and each index of them holds all parts.
      start: the index of this part's first element among the elements of all parts.
      total: the number of elements of all parts together.
    """

    outer: int
    start: int = 0
    total: int = 0


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes that each dimension of a tensor joins. A dimension without axes has size 1.

    Attributes:
      groups: the axes of each dimension.
      parts: this rule's part of each dimension that several rules share, by the dimension's number.
    """

    groups: tuple[tuple[str, ...], ...]
    parts: Mapping[int, Part] = dataclasses.field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Axes:
        """Reads axes from a text such as `d_model (heads d_kv)`.

        Raises:
          RuleFault: if the text has another form. The message marks the place.
        """
        groups: list[tuple[str, ...]] = []
        inner: list[str] | None = None
        parts: dict[int, Part] = {}
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token == "(" and inner is None:
                inner = []
            elif token == ")" and inner is not None:
                groups.append(tuple(inner))
                inner = None
            elif token == "+" and inner is not None and len(groups) not in parts:
                parts[len(groups)] = Part(len(inner))
            elif token == "1" and inner is None:
                groups.append(())
            elif token[0].isalpha() or token[0] == "_":
                (groups.append((token,)) if inner is None else inner.append(token))
            else:
                raise RuleFault(f"{token!r} is not allowed here:\n    {text}\n    {' ' * match.start()}^")
        if inner is not None:
            raise RuleFault(f"a bracket is not closed:\n    {text}")
        found = cls(tuple(groups), parts)
        if len(set(found.names)) < len(found.names):
            raise RuleFault(f"an axis appears twice:\n    {text}")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group)

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape of the whole tensor, with the parts of all rules."""
        whole = [math.prod(sizes[name] for name in group) for group in self.groups]
        for number, part in self.parts.items():
            whole[number] = math.prod(sizes[name] for name in self.groups[number][: part.outer]) * part.total
        return tuple(whole)

    def part_size(self, number: int, sizes: Mapping[str, int]) -> int:
        """The number of elements of this part of a dimension, at each index of the axes that all rules share."""
        return math.prod(sizes[name] for name in self.groups[number][self.parts[number].outer :])

    def placed(self, starts: Mapping[int, int], totals: Mapping[int, int]) -> Axes:
        """The same axes, where each part has its start and the number of elements of all parts."""
        parts = {n: dataclasses.replace(p, start=starts[n], total=totals[n]) for n, p in self.parts.items()}
        return dataclasses.replace(self, parts=parts)

    def region_of(self, box: Box, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """The smallest region that covers a box. It has the full range of every axis but the first of each dimension.

        The region is empty if the box has no element of this part.
        """
        region: dict[str, tuple[int, int]] = {}
        for number, (group, start, size) in enumerate(zip(self.groups, box.start, box.size, strict=True)):
            part, end = self.parts.get(number), start + size
            region.update({name: (0, sizes[name]) for name in group})
            if part is None or part.outer == 0:
                inner = math.prod(sizes[name] for name in group[1:])
                first = 0 if part is None else part.start
                start, end = max(start - first, 0), max(min(end - first, inner * sizes[group[0]]), 0) if group else 1
            else:
                inner = math.prod(sizes[name] for name in group[1 : part.outer]) * part.total
            if group:
                region[group[0]] = (start // inner, -(-end // inner))
        return region

    def box_of(self, region: Region, sizes: Mapping[str, int]) -> tuple[Box, dict[str, tuple[int, int]]]:
        """A box of the tensor that covers a region, and the larger region that fills this box."""
        covered: dict[str, tuple[int, int]] = {}
        start, size = [], []
        for number, group in enumerate(self.groups):
            part = self.parts.get(number)
            inner = math.prod(sizes[name] for name in group[1:])
            if part is not None and part.outer:
                inner = math.prod(sizes[name] for name in group[1 : part.outer]) * part.total
            first, end = region[group[0]] if group else (0, 1)
            covered.update({name: (0, sizes[name]) for name in group[1:]})
            if group:
                covered[group[0]] = (first, end)
            start.append(first * inner + (part.start if part is not None and not part.outer else 0))
            size.append((end - first) * inner)
        return Box(tuple(start), tuple(size)), covered

    def indices(self, region: Region, sizes: Mapping[str, int]) -> list[np.ndarray]:
        """The indices of a region's elements in the whole tensor, along each dimension, in the order of its axes."""
        found = []
        for number, group in enumerate(self.groups):
            part = self.parts.get(number)
            outer = len(group) if part is None else part.outer
            places = _flat(group[:outer], region, sizes)
            if part is not None:
                inner = part.start + _flat(group[outer:], region, sizes)
                places = (places[:, None] * part.total + inner).reshape(-1)
            found.append(places)
        return found


def _flat(names: tuple[str, ...], region: Region, sizes: Mapping[str, int]) -> np.ndarray:
    """The row-major indices of a region's elements, in a dimension that joins these axes."""
    found = np.zeros(1, np.int64)
    for name in names:
        found = (found[:, None] * sizes[name] + np.arange(*region[name])).reshape(-1)
    return found
