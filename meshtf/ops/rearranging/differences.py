"""Differences of neighbours along a dimension."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import sub
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.inputs.accepted_dtypes import NUMBER, require
from meshtf.ops.inputs.scalars import whole_number
from meshtf.ops.rearranging.concat_and_slice import slice


@language_function
def diff(x: Tensor, dim: DimensionLike, n: int = 1) -> Tensor:
    """Each element minus the one before it along a dimension, which becomes shorter by one.

    Args:
      x: a tensor of numbers.
      dim: a dimension of x.
      n: how many times differences are taken.

    Raises:
      ShapeError: x lacks the dimension, or it has no more than `n` elements.
      DtypeError: x is bool.

    Examples:
      >>> value(mtf.diff(mtf.constant(mesh, [1.0, 4.0, 9.0], "n:3"), "n"))
      array([3., 5.], dtype=float32)
    """
    require(check_tensor(x), NUMBER)
    own, times = reduced_dimension(x, dim), whole_number(n, "n")
    if not 0 <= times < own.size:
        raise ShapeError(
            f'{n} differences of [{x.shape}] along "{own.name}" leave no element; n must be from 0 to {own.size - 1}'
        )
    for size in reversed(range(own.size - times, own.size)):
        x = sub(slice(x, 1, size, own.name), slice(x, 0, size, own.name))
    return x
