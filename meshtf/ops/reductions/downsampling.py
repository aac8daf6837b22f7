"""Fewer elements along a dimension: neighbours reduced to one, every n-th element, or the first of all."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduce_mean, reduced_dimension
from meshtf.ops.indexing.gather import gather
from meshtf.ops.rearranging.reshape import replace_dimensions


@language_function
def pool_tensor_1d(
    tensor: Tensor,
    pool_dim: DimensionLike,
    reduce_fn: Callable[..., Tensor] = reduce_mean,
    pool_size: int = 2,
) -> Tensor:
    """Reduces each `pool_size` neighbours along a dimension to one element.

    Args:
      tensor: a tensor of any dtype that `reduce_fn` takes.
      pool_dim: a dimension of the tensor. Its size in the result must fit the layout, like any other.
      reduce_fn: a function that is called as `reduce_fn(x, reduced_dim=dim)`, such as `mtf.reduce_max`.
      pool_size: a divisor of the dimension's size.

    Raises:
      ShapeError: the tensor lacks the dimension, or `pool_size` does not divide its size.

    Examples:
      >>> value(mtf.pool_tensor_1d(mtf.constant(mesh, [1.0, 3.0, 5.0, 9.0], "n:4"), "n"))
      array([2., 7.], dtype=float32)
      >>> mtf.pool_tensor_1d(x, "hidden", mtf.reduce_max, pool_size=4)
      reduce_max [batch:4 hidden:2] float32
    """
    own = reduced_dimension(check_tensor(tensor), pool_dim)
    size = _divisor(pool_size, own)
    within = Dimension(next(n for n in _names("_low") if not tensor.shape.has(n)), size)
    runs = replace_dimensions(tensor, own, [Dimension(own.name, own.size // size), within])
    return reduce_fn(runs, reduced_dim=within)


@language_function
def stride_tensor_1d(tensor: Tensor, pool_dim: DimensionLike, pool_size: int = 2) -> Tensor:
    """Every `pool_size`-th element along a dimension, starting with the first.

    Raises:
      ShapeError: the tensor lacks the dimension, or `pool_size` does not divide its size.

    Examples:
      >>> value(mtf.stride_tensor_1d(mtf.range(mesh, ("n", 6)), "n", pool_size=3))
      array([0, 3], dtype=int32)
    """
    return pool_tensor_1d(tensor, pool_dim, reduce_first, pool_size)


@language_function
def reduce_first(tensor: Tensor, reduced_dim: DimensionLike) -> Tensor:
    """The first element along a dimension, which the result lacks.

    Raises:
      ShapeError: the tensor lacks the dimension, or it has size 0.

    Examples:
      >>> value(mtf.reduce_first(mtf.range(mesh, ("n", 5)), "n"))
      np.int32(0)
    """
    own = reduced_dimension(check_tensor(tensor), reduced_dim)
    if not own.size:
        raise ShapeError(f'dimension "{own.name}" has size 0 and no first element')
    return gather(tensor, 0, own)


def _names(first: str) -> Iterator[str]:
    yield first
    yield from map((first + "_{}").format, itertools.count(1))


def _divisor(pool_size: int, dim: Dimension) -> int:
    try:
        size = operator.index(pool_size)
    except TypeError:
        raise ShapeError(f"pool_size must be a whole number known now, not {pool_size!r}") from None
    if size < 1 or dim.size % size:
        raise ShapeError(f'pool_size {size} does not divide dimension "{dim.name}" of size {dim.size}')
    return size
