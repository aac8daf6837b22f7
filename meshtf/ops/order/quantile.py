"""Medians and other quantiles along a dimension, from its sorted elements."""

from __future__ import annotations

import math

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.errors import ShapeError, UsageError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.number_checks import is_number
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.indexing.gather import gather
from meshtf.ops.inputs.accepted_dtypes import REAL, require
from meshtf.ops.order.sorting import sort


@language_function
def quantile(x: Tensor, q: float, reduced_dim: DimensionLike) -> Tensor:
    """The number below which a fraction `q` of the elements along a dimension lies.

    Between two elements, the result is interpolated. NaN counts as -inf. Gradients flow to the one or two elements
    that the result comes from.

    Args:
      x: real and floating.
      q: a fraction from 0 to 1. 0 is the minimum, 0.5 the median, 1 the maximum.
      reduced_dim: a dimension of x, which the result lacks.

    Raises:
      ShapeError: x lacks the dimension, or it has size 0.
      DtypeError: x is not real and floating.
      UsageError: q is not in [0, 1].

    Examples:
      >>> value(mtf.quantile(mtf.constant(mesh, [4.0, 1.0, 2.0], "n:3"), 0.75, "n"))
      np.float32(3.0)
    """
    require(check_tensor(x), REAL)
    dim = reduced_dimension(x, reduced_dim)
    if not is_number(q) or not 0 <= q <= 1:
        raise UsageError(f"q must be from 0 to 1, not {q!r}; divide a percentage by 100")
    if not dim.size:
        raise ShapeError(f'dimension "{dim.name}" has size 0 and no quantiles')
    place = q * (dim.size - 1)
    first, share = math.floor(place), place - math.floor(place)
    ordered = sort(x, dim)
    lower = gather(ordered, first, dim)
    if not share:  # the next element may be infinite, or may not exist
        return lower
    wide = sum_dtype(x.dtype)
    upper = cast(gather(ordered, first + 1, dim), wide)
    return cast(cast(lower, wide) * (1 - share) + upper * share, x.dtype)


@language_function
def median(x: Tensor, reduced_dim: DimensionLike) -> Tensor:
    """The middle element along a dimension, or the mean of the two middle elements. NaN counts as -inf.

    Raises:
      ShapeError: x lacks the dimension, or it has size 0.
      DtypeError: x is not real and floating.

    Examples:
      >>> value(mtf.median(mtf.constant(mesh, [4.0, 1.0, 2.0], "n:3"), "n"))
      np.float32(2.0)
    """
    return quantile(x, 0.5, reduced_dim)
