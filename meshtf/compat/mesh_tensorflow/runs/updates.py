"""Assignments that form one update, such as an optimizer's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from meshtf.graph.operation import Operation


@dataclasses.dataclass(frozen=True)
class Updates:
    """The update that `apply_grads` returns in a list of one. All its assignments start from the same values.

    Attributes:
      operations: the assignments.
    """

    operations: tuple[Operation, ...]

    @classmethod
    def of(cls, parts: Iterable[Operation | Updates]) -> Updates:
        """Joins several assignments and updates."""
        return cls(tuple(o for p in parts for o in (p.operations if isinstance(p, Updates) else (p,))))

    @property
    def name(self) -> str:
        return "updates"
