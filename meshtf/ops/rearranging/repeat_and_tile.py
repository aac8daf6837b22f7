"""Copies single elements or the whole tensor along a dimension."""

from __future__ import annotations

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, unused_name
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.algebra.transpose_and_broadcast import broadcast
from meshtf.ops.inputs.scalars import whole_number
from meshtf.ops.rearranging.reshape import replace_dimensions


@language_function
def repeat(x: Tensor, repeats: int, dim: DimensionLike) -> Tensor:
    """Repeats each element `repeats` times along a dimension.

    To repeat x along a new dimension, use `mtf.broadcast`.

    Args:
      x: a tensor of any dtype.
      repeats: how many times.
      dim: a dimension of x, which becomes `repeats` times as long.

    Raises:
      ShapeError: x lacks the dimension, or `repeats` is negative or no whole number.

    Examples:
      >>> value(mtf.repeat(mtf.range(mesh, ("n", 3)), 2, "n"))
      array([0, 0, 1, 1, 2, 2], dtype=int32)
    """
    return _copied(x, repeats, dim, is_tiled=False)


@language_function
def tile(x: Tensor, repeats: int, dim: DimensionLike) -> Tensor:
    """Repeats the whole of x `repeats` times along a dimension.

    To repeat x along a new dimension, use `mtf.broadcast`.

    Args:
      x: a tensor of any dtype.
      repeats: how many times.
      dim: a dimension of x, which becomes `repeats` times as long.

    Raises:
      ShapeError: x lacks the dimension, or `repeats` is negative or no whole number.

    Examples:
      >>> value(mtf.tile(mtf.range(mesh, ("n", 3)), 2, "n"))
      array([0, 1, 2, 0, 1, 2], dtype=int32)
    """
    return _copied(x, repeats, dim, is_tiled=True)


def _copied(x: Tensor, repeats: int, dim: DimensionLike, *, is_tiled: bool) -> Tensor:
    own, times = reduced_dimension(check_tensor(x), dim), whole_number(repeats, "repeats")
    if times < 0:
        raise ShapeError(f"repeats must not be negative, and is {times}")
    copies = Dimension(unused_name("(copies)", x.shape), times)
    pair = [copies, own] if is_tiled else [own, copies]
    axis = x.shape.axis(own)
    wide = Shape([*x.shape.dims[:axis], *pair, *x.shape.dims[axis + 1 :]])
    return replace_dimensions(broadcast(x, wide), pair, Dimension(own.name, own.size * times))
