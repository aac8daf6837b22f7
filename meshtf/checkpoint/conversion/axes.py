"""Shapes as text: `d_model (heads d_kv)` has two dimensions, the second of which is two axes together, row by row."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping

from meshtf.checkpoint._box import Box

Region = Mapping[str, tuple[int, int]]
"""For each axis the first index and the one behind the last."""

_TOKEN = re.compile(r"[a-z_][a-z_0-9]*|[()1]|\S")


class RuleFault(ValueError):  # noqa: N818  # whoever reads the file of rules tells of it
    """What a rule cannot say, in words."""


@dataclasses.dataclass(frozen=True)
class Axes:
    """The axes that each dimension of a tensor is made of; a dimension of none has size 1."""

    groups: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Axes:
        """
        Raises:
          RuleFault: it is no such text; says where.
        """
        groups: list[tuple[str, ...]] = []
        inner: list[str] | None = None
        for match in _TOKEN.finditer(text):
            token = match[0]
            if token == "(" and inner is None:
                inner = []
            elif token == ")" and inner is not None:
                groups.append(tuple(inner))
                inner = None
            elif token == "1" and inner is None:
                groups.append(())
            elif token[0].isalpha() or token[0] == "_":
                (groups.append((token,)) if inner is None else inner.append(token))
            else:
                raise RuleFault(f"{token!r} cannot stand here:\n    {text}\n    {' ' * match.start()}^")
        if inner is not None:
            raise RuleFault(f"a bracket is not closed:\n    {text}")
        found = cls(tuple(groups))
        if len(set(found.names)) < len(found.names):
            raise RuleFault(f"an axis is there twice:\n    {text}")
        return found

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for group in self.groups for name in group)

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(math.prod(sizes[name] for name in group) for group in self.groups)

    def region_of(self, box: Box, sizes: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        """The smallest region that has all of a box and is whole in all axes but the first of each dimension."""
        region: dict[str, tuple[int, int]] = {}
        for group, start, size in zip(self.groups, box.start, box.size, strict=True):
            for name in group[1:]:
                region[name] = (0, sizes[name])
            if group:
                inner = math.prod(sizes[name] for name in group[1:])
                region[group[0]] = (start // inner, -(-(start + size) // inner))
        return region

    def box_of(self, region: Region, sizes: Mapping[str, int]) -> tuple[Box, dict[str, tuple[int, int]]]:
        """A box of the tensor that has all of a region, and the region that this box is."""
        covered: dict[str, tuple[int, int]] = {}
        start, size = [], []
        for group in self.groups:
            inner = math.prod(sizes[name] for name in group[1:])
            first, end = region[group[0]] if group else (0, 1)
            covered.update({name: (0, sizes[name]) for name in group[1:]})
            if group:
                covered[group[0]] = (first, end)
            start.append(first * inner)
            size.append((end - first) * inner)
        return Box(tuple(start), tuple(size)), covered
