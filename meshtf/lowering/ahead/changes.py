"""Changes to a program that may make it fit into memory, and functions that plan the program with a change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from meshtf.planning.plan import Plan


@dataclasses.dataclass(frozen=True)
class Change:
    """A change to a program that may reduce its memory.

    Attributes:
      parameter_layout: the layout of variables between steps. None: unchanged.
      layers_keep: the most that the gradients of scans and stacks of layers keep, as in `mtf.RecomputePolicy`. None:
        unchanged.
    """

    parameter_layout: str | None = None
    layers_keep: str | None = None

    def __str__(self) -> str:
        said = [] if self.parameter_layout is None else [f'parameter_layout="{self.parameter_layout}"']
        if self.layers_keep is not None:
            said.append(f'recompute="{self.layers_keep}" in every mtf.layer_stack and mtf.scan')
        return " and ".join(said)


PlanWith: TypeAlias = Callable[[Change], Plan | None]
"""Returns the plan of a program with a change, or None if the change is not legal or the program cannot be traced
again."""
