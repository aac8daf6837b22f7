"""Tells whether positions are known to be a range while a graph is built."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.inputs.constants import RangeOperation
from meshtf.ops.rearranging.reshape import ReshapeOperation


@language_function
def is_range(x: Tensor) -> bool:
    """Tells whether x is known to be `0, 1, 2, ...` along its one dimension while the graph is built.

    This is true for the result of `mtf.range`, even after its dimension was renamed. If positions are a range, an
    attention layer need not compute the scores that a causal mask hides.

    Args:
      x: a tensor of any shape.

    Examples:
      >>> positions = mtf.range(mesh, ("length", 16))
      >>> mtf.is_range(positions), mtf.is_range(mtf.rename_dimension(positions, "length", "memory_length"))
      (True, True)
      >>> mtf.is_range(positions + 1)
      False
    """
    operation = check_tensor(x).operation
    while isinstance(operation, ReshapeOperation) and operation.inputs[0].shape.ndims == 1:
        operation = operation.inputs[0].operation
    return x.shape.ndims == 1 and isinstance(operation, RangeOperation)
