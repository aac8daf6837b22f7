"""Assignments that are one update: an optimizer's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from meshtf.graph.operation import Operation


@dataclasses.dataclass(frozen=True)
class Updates:
    """What `apply_grads` returns in a list of one: all its assignments start from the same values.

    Attributes:
      operations: the assignments.
    """

    operations: tuple[Operation, ...]

    @classmethod
    def of(cls, parts: Iterable[Operation | Updates]) -> Updates:
        """All of some, joined."""
        return cls(tuple(o for p in parts for o in (p.operations if isinstance(p, Updates) else (p,))))

    @property
    def name(self) -> str:
        return "updates"
