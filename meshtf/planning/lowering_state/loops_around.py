"""The loops around the operation that is being lowered."""

from __future__ import annotations

import dataclasses

from meshtf.planning.microbatch_cut import MicrobatchCut
from meshtf.planning.plan import Value


@dataclasses.dataclass(frozen=True)
class LoopsAround:
    """The iteration numbers of the loops that enclose an operation. Random bits depend on them.

    Attributes:
      iterations: the iteration number of each loop, outermost first (int32 scalars).
      layers: the layer numbers in loops over stacks of layers. They replace the numbers in the names of unrolled
        layers.
      microbatches: how a batch is cut into micro-batches, and the number of the current one, innermost first.
    """

    iterations: tuple[Value, ...] = ()
    layers: tuple[Value, ...] = ()
    microbatches: tuple[tuple[MicrobatchCut, Value], ...] = ()
