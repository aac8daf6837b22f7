"""Chooses the tensors of fewest bytes to keep for a gradient, if elementwise work is recomputed.

The gradient uses some tensors of a block. Each of them is either kept or recomputed from kept tensors. Suppose that
the block is

    a (16 MB) = matmul(...);   b (4 MB) = cast(a);   c (4 MB) = tanh(b);   d (4 MB) = b * c

and the gradient uses c and d. Keeping c and d takes 8 MB. Keeping b takes 4 MB, and c and d are cheap to recompute from
it. A minimum cut finds this: each tensor is an edge whose capacity is its bytes. The edges lead from "start" (products
and inputs, which are not cheap to recompute) to "end" (tensors that the gradient uses). The cut edges are kept.
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
    """The tensors of fewest total bytes in a block from which elementwise operations make all of `used`.

    This is a minimum cut, as of Chen et al. (2016) and of the partitioning of PyTorch's AOTAutograd. If several cuts
    have the same bytes, the function takes the one nearest to the gradient, which recomputes least.

    Args:
      used: the tensors that the gradient uses.
      given: the block's inputs. They can be kept, but not recomputed.
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
            # An edge without a capacity is infinite: recomputing this tensor is not cheap, so it cannot be cut before.
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
