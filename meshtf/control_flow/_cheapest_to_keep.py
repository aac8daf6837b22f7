"""Chooses the tensors that a gradient keeps, of the fewest bytes, if elementwise work is done again.

The gradient uses some tensors of a block. Each of them is kept, or is made again from tensors that are kept. Say the
block is

    a (16 MB) = matmul(...);   b (4 MB) = cast(a);   c (4 MB) = tanh(b);   d (4 MB) = b * c

and the gradient uses c and d. To keep c and d takes 8 MB. To keep b takes 4 MB, and c and d are cheap to make from it.
A minimum cut finds this: each tensor is an edge whose capacity is its bytes, from "start" (products, inputs, which
cannot be made again cheaply) to "end" (tensors that the gradient uses). The cut edges are the tensors to keep.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import networkx

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor

_START, _END = "start", "end"


def cheapest_to_keep(
    used: Sequence[Tensor], given: Collection[Tensor], operations: Sequence[Operation], *, there: Collection[Tensor]
) -> set[Tensor]:
    """The tensors of a block, of the fewest bytes together, from which elementwise operations make all of `used`.

    This is a minimum cut, as of Chen et al. (2016) and of the partitioning of PyTorch's AOTAutograd. If several cuts
    have the same bytes, the function takes the one nearest to the gradient, which computes least again.

    Args:
      used: the tensors that the gradient uses.
      given: the block's inputs. They can be kept, but not made again.
      operations: the block's operations.
      there: inputs among `given` that take no memory of their own.
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
        # Two nodes for each tensor, so that keeping it is an edge that a cut can pay for.
        cut.add_edge(("made", tensor), ("kept", tensor), capacity=0 if tensor in there else _bytes(tensor))
        if tensor in given or not tensor.operation.is_cheap:
            # An edge without a capacity is infinite: nothing makes this tensor cheaply, so a cut must pass behind it.
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
