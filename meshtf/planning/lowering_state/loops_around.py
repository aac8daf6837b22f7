"""The loops around the operation that is being lowered."""

from __future__ import annotations

import dataclasses

from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.plan import Value


@dataclasses.dataclass(frozen=True)
class LoopsAround:
    """The numbers of the iterations of the loops around an operation, on which random bits depend.

    Attributes:
      iterations: the numbers of loops' iterations, outermost first (int32 scalars).
      layers: the numbers in loops over the layers of stacks. They stand in for the numbers in unrolled layers' names.
      microbatches: how a batch is cut into micro-batches, and the number of this one, innermost first.
    """

    iterations: tuple[Value, ...] = ()
    layers: tuple[Value, ...] = ()
    microbatches: tuple[tuple[MicrobatchCut, Value], ...] = ()
