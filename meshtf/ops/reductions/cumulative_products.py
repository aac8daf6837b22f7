"""Running products, and running sums of numbers known by their logarithms. Both work by doubling."""

from __future__ import annotations

import math
from collections.abc import Callable

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import multiply
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.exponentials_and_logarithms import logaddexp
from meshtf.ops.inputs.accepted_dtypes import NUMBER, REAL, require
from meshtf.ops.reductions.doubling import before, up_to


@language_function
def cumprod(x: Tensor, dim: DimensionLike, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """Running products along a dimension, in the dtype of x. Gradients are exact even where elements are 0.

    Args:
      x: a tensor of numbers.
      dim: a dimension of x.
      exclusive: whether each product leaves out the element itself.
      reverse: whether to multiply from the end.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x is bool.

    Examples:
      >>> numbers = mtf.constant(mesh, [2, 3, 4], "n:3", tf.int32)
      >>> value(mtf.cumprod(numbers, "n")), value(mtf.cumprod(numbers, "n", exclusive=True))
      (array([ 2,  6, 24], dtype=int32), array([1, 2, 6], dtype=int32))
    """
    require(check_tensor(x), NUMBER)
    return _cumulative(x, dim, multiply, 1, exclusive=exclusive, reverse=reverse)


@language_function
def cumlogsumexp(x: Tensor, dim: DimensionLike, exclusive: bool = False, reverse: bool = False) -> Tensor:
    """The logarithm of running sums of exp(x) along a dimension, without overflow.

    Args:
      x: a real floating tensor.
      dim: a dimension of x.
      exclusive: whether each sum leaves out the element itself; then the first is -inf.
      reverse: whether to add from the end.

    Raises:
      ShapeError: x lacks the dimension.
      DtypeError: x is not real and floating.

    Examples:
      >>> value(mtf.cumlogsumexp(mtf.constant(mesh, [1000.0, 1000.0], "n:2"), "n")).round(3)
      array([1000.   , 1000.693], dtype=float32)
    """
    require(check_tensor(x), REAL)
    return _cumulative(x, dim, logaddexp, -math.inf, exclusive=exclusive, reverse=reverse)


def _cumulative(
    x: Tensor,
    dim: DimensionLike,
    combine: Callable[[Tensor, Tensor], Tensor],
    neutral: float,
    *,
    exclusive: bool,
    reverse: bool,
) -> Tensor:
    """The running results, computed in float32 for narrower floating dtypes."""
    own: Dimension = reduced_dimension(x, dim)
    wide: tf.DType = sum_dtype(x.dtype)
    scan = before if exclusive else up_to
    return cast(scan(cast(x, wide), own, combine, neutral, reverse=reverse), x.dtype)
