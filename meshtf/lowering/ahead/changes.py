"""Changes of a program that may make it fit, and its plans with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TypeAlias

from meshtf.planning.plan import Plan


@dataclasses.dataclass(frozen=True)
class Change:
    """A change to a program, with which it may need less memory.

    Attributes:
      parameter_layout: the layout of variables between steps. None: as it is.
      layers_keep: the most that the gradients of scans and stacks of layers keep, as `mtf.RecomputePolicy` has it.
        None: as the program says.
    """

    parameter_layout: str | None = None
    layers_keep: str | None = None

    def __str__(self) -> str:
        said = [] if self.parameter_layout is None else [f'parameter_layout="{self.parameter_layout}"']
        if self.layers_keep is not None:
            said.append(f'recompute="{self.layers_keep}" in every mtf.layer_stack and mtf.scan')
        return " and ".join(said)


PlanWith: TypeAlias = Callable[[Change], Plan | None]
"""The plan of a program with a change; None where that is not legal, or nobody can trace the program again."""
