"""Variances and standard deviations over named dimensions.

They are means of (x - mean)², however large the mean is. The shortcut mean(x²) - mean(x)² would lose all digits for
values near 10,000 with a deviation of 1. float16 and bfloat16 are computed in float32, and rounded once.
"""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import ShapeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import divide, square, stop_gradient, sub
from meshtf.ops.algebra.reduction import check_some_elements, reduce_mean, reduced_shape
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import equal
from meshtf.ops.elementwise.unary_and_binary import unary
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.accepted_dtypes import REAL, require
from meshtf.ops.inputs.scalars import whole_number


@language_function
def reduce_variance(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
    *,
    ddof: int = 0,
) -> Tensor:
    """The variance over `reduced_dim`, or over the dimensions that `output_shape` lacks (by default all).

    Args:
      x: real and floating.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced.
      output_shape: the dimensions that are left, in order.
      name: the name of the operation that takes the mean of squares.
      ddof: the sum of squares is divided by the number of elements minus `ddof`. 1 gives the unbiased variance.

    Raises:
      ShapeError: x lacks a dimension, or has no more than `ddof` elements; or `output_shape` and `reduced_dim` are
        both given.
      DtypeError: x is not real and floating.

    Examples:
      >>> numbers = mtf.constant(mesh, [1.0, 2.0, 3.0], "n:3")
      >>> value(mtf.reduce_variance(numbers)).round(3), value(mtf.reduce_variance(numbers, ddof=1))
      (np.float32(0.667), np.float32(1.0))
      >>> mtf.reduce_variance(x, reduced_dim="hidden").shape
      Shape[batch:4]
    """
    shape = _left_shape(x, reduced_dim, output_shape)
    return cast(_variance(x, shape, ddof, name or "reduce_variance"), x.dtype)


@language_function
def reduce_std(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
    *,
    ddof: int = 0,
) -> Tensor:
    """The standard deviation over `reduced_dim`, or over the dimensions that `output_shape` lacks (by default all).

    Where all elements are equal, its gradient is 0.

    Args:
      x: real and floating.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.
      ddof: the sum of squares is divided by the number of elements minus `ddof`. 1 gives a sample's deviation.

    Raises:
      ShapeError: x lacks a dimension, or has no more than `ddof` elements; or `output_shape` and `reduced_dim` are
        both given.
      DtypeError: x is not real and floating.

    Examples:
      >>> value(mtf.reduce_std(mtf.constant(mesh, [1.0, 3.0], "n:2")))
      np.float32(1.0)
    """
    shape = _left_shape(x, reduced_dim, output_shape)
    variance = _variance(x, shape, ddof, "reduce_variance")
    return cast(unary(variance, name or "reduce_std", tf.sqrt, _slope_of_root, REAL), x.dtype)


def _left_shape(x: Tensor, reduced_dim: ShapeLike | None, output_shape: ShapeLike | None) -> Shape:
    require(check_tensor(x), REAL)
    shape = reduced_shape(x, output_shape, reduced_dim)
    check_some_elements(x, shape, "variance")
    return shape


def _variance(x: Tensor, shape: Shape, ddof: int, name: str) -> Tensor:
    """The variance over the dimensions that `shape` lacks, in float32 or float64."""
    count, lost = x.size // max(1, shape.size), whole_number(ddof, "ddof")
    if count <= lost and shape.size:
        raise ShapeError(f"the variance of {count} elements of [{x.shape}] with ddof {lost} would divide by 0 or less")
    wide = cast(x, sum_dtype(x.dtype))
    near = sub(wide, reduce_mean(wide, output_shape=shape), output_shape=x.shape)
    # The mean is rounded. A second mean removes the rounding error, which has no gradient: without rounding it is 0.
    centred = sub(near, stop_gradient(reduce_mean(near, output_shape=shape)), output_shape=x.shape)
    variance = reduce_mean(square(centred), output_shape=shape, name=name)
    return variance * (count / (count - lost)) if lost else variance


def _slope_of_root(x: Tensor, y: Tensor) -> Tensor:
    """1 / (2 sqrt(x)), and 0 for a variance of 0, whose own gradient is 0."""
    is_zero = equal(y, 0.0)
    return where(is_zero, 0.0, divide(0.5, where(is_zero, 1.0, y)))
