"""What a gradient keeps where elementwise work is done again: of all choices that do, the one of the fewest bytes."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import networkx

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor

_START, _END = "start", "end"


def cheapest_to_keep(
    used: Sequence[Tensor], given: Collection[Tensor], operations: Sequence[Operation], *, there: Collection[Tensor]
) -> set[Tensor]:
    """The tensors of a block from which `used` are made by elementwise operations alone, of the fewest bytes together.

    A minimum cut (as of Chen et al. 2016 and of the partitioning of PyTorch's AOTAutograd): between what can only be
    kept, and what the gradient uses. Of several the one nearest to the gradient is taken, which computes least again.

    Args:
      used: by the gradient.
      given: to the block; they can be kept, and not made.
      operations: of the block.
      there: those of `given` that take no memory of their own.
    """
    inside = {t for o in operations for t in o.outputs}
    cut = networkx.DiGraph()
    cut.add_nodes_from([_START, _END])
    waiting = list(dict.fromkeys(x for x in used if x in inside or x in given))
    for x in waiting:
        cut.add_edge(("kept", x), _END)
    seen = set(waiting)
    while waiting:
        tensor = waiting.pop()
        cut.add_edge(("made", tensor), ("kept", tensor), capacity=0 if tensor in there else _bytes(tensor))
        if tensor in given or not tensor.operation.is_cheap:
            cut.add_edge(_START, ("made", tensor))
            continue
        for x in tensor.operation.inputs:
            if x in inside or x in given:
                cut.add_edge(("kept", x), ("made", tensor))
                if x not in seen:
                    seen.add(x)
                    waiting.append(x)
    _, (near, _) = networkx.minimum_cut(cut, _START, _END)
    return {x for x in seen if ("made", x) in near and ("kept", x) not in near}


def _bytes(tensor: Tensor) -> int:
    return max(1, tensor.shape.size * tensor.dtype.size)
