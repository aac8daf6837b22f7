"""Products, maxima and minima over named dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, ShapeLike
from meshtf.errors import DtypeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import divide, multiply
from meshtf.ops.algebra.elementwise_operation import conjugate
from meshtf.ops.algebra.reduction import ReduceOperation, Reduction, reduce, reduce_sum
from meshtf.ops.algebra.slopes import times_slope
from meshtf.ops.algebra.wrapping_integers import product_along
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import equal
from meshtf.ops.elementwise.non_finite_numbers import is_nan
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import constant, ones_like
from meshtf.ops.reductions.doubling import before
from meshtf.planning.layouts.padding import HIGHEST, LOWEST
from meshtf.planning.local_work import extrema


@language_function
def reduce_prod(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The product over `reduced_dim`, or over the dimensions that `output_shape` lacks (by default all).

    Its gradients, of any order, are exact even where elements are 0, because nothing is divided.

    Args:
      x: numbers.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or `output_shape` and `reduced_dim` are both given.
      DtypeError: x is bool.

    Examples:
      >>> value(mtf.reduce_prod(mtf.constant(mesh, [2.0, 3.0, 4.0], "n:3")))
      np.float32(24.0)
    """
    return reduce(x, PROD, output_shape, reduced_dim, name)


@language_function
def reduce_max(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The maximum over `reduced_dim`, or over the dimensions that `output_shape` lacks; NaN if one is NaN.

    Ties share gradients.

    Args:
      x: numbers that have an order.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or has no elements to choose from; or `output_shape` and `reduced_dim` are both
        given.
      DtypeError: x is bool or complex.

    Examples:
      >>> mtf.reduce_max(x, reduced_dim="hidden")
      reduce_max [batch:4] float32
      >>> value(mtf.reduce_max(mtf.range(mesh, ("n", 5))))
      np.int32(4)
    """
    _check_ordered(x)
    return reduce(x, MAX, output_shape, reduced_dim, name)


@language_function
def reduce_min(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """The minimum over `reduced_dim`, or over the dimensions that `output_shape` lacks; NaN if one is NaN.

    Ties share gradients.

    Args:
      x: numbers that have an order.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or has no elements to choose from; or `output_shape` and `reduced_dim` are both
        given.
      DtypeError: x is bool or complex.

    Examples:
      >>> mtf.reduce_min(x, output_shape="batch:4")
      reduce_min [batch:4] float32
      >>> value(mtf.reduce_min(mtf.range(mesh, ("n", 5))))
      np.int32(0)
    """
    _check_ordered(x)
    return reduce(x, MIN, output_shape, reduced_dim, name)


def _check_ordered(x: Tensor) -> None:
    if check_tensor(x).dtype.is_complex:
        raise DtypeError(f"{x.dtype.name} has no order; take mtf.real, mtf.imag or mtf.abs")


def _extremum_gradient(op: ReduceOperation, dy: Tensor) -> Tensor:
    """The share of each element that is chosen, and 0 for others; NaN for all elements if the extremum is NaN."""
    (x,), (y,) = op.inputs, op.outputs
    chosen = equal(x, y, output_shape=x.shape)
    # float16 cannot hold the number of equals if it is above 65504.
    wide = sum_dtype(dy.dtype)
    share = cast(divide(cast(dy, wide), reduce_sum(cast(chosen, wide), output_shape=y.shape)), dy.dtype)
    # A product of the choice and the share, 0 times infinity if nothing is chosen, would be 0 on XLA.
    other = times_slope(dy, where(is_nan(y), math.nan, constant(y.mesh, 0, dtype=dy.dtype)), y.shape)
    return where(chosen, share, other, output_shape=x.shape)


def _prod_gradient(op: ReduceOperation, dy: Tensor) -> Tensor:
    (x,), (y,), wide = op.inputs, op.outputs, sum_dtype(dy.dtype)
    others = _product_of_others(cast(x, wide), [d for d in x.shape if not y.shape.has(d.name)])
    return cast(multiply(cast(dy, wide), conjugate(others), output_shape=x.shape), x.dtype)


def _product_of_others(x: Tensor, dims: Sequence[Dimension]) -> Tensor:
    """The product of all other elements along some dimensions, for each element of x.

    It multiplies the product of the elements before by the product of those after: for a b c d, c gets (a b)(d).
    Nothing is divided, so zeros need no special case. The result is exact, and so are its gradients, which are
    gradients of products of two factors.
    """
    shape, others = x.shape, ones_like(x)
    for dim in dims:
        own = multiply(before(x, dim, multiply, 1), before(x, dim, multiply, 1, reverse=True))
        others = multiply(others, own, output_shape=shape) if x.shape != shape else own
        x = reduce_prod(x, reduced_dim=dim)
    return others


PROD = Reduction("reduce_prod", product_along, "multiply", 1, _prod_gradient)
MAX = Reduction("reduce_max", extrema.reduce_max, "max", LOWEST, _extremum_gradient, "maximum")
MIN = Reduction("reduce_min", extrema.reduce_min, "min", HIGHEST, _extremum_gradient, "minimum")
