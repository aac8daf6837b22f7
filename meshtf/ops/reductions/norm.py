"""Lengths of vectors over named dimensions."""

from __future__ import annotations

import math

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import UsageError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduce_sum, reduced_shape
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.complex_numbers import abs
from meshtf.ops.inputs.accepted_dtypes import FLOATING, require
from meshtf.ops.reductions.products_and_extrema import reduce_max
from meshtf.ops.reductions.sum_of_squares import root_of_squares, sum_of_squares


@language_function
def norm(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    *,
    ord: float = 2,  # noqa: A002  # the name that NumPy and TensorFlow give it
) -> Tensor:
    """The length of x as a vector over `reduced_dim`, or over the dimensions that `output_shape` lacks.

    The Euclidean length neither overflows nor vanishes if its dtype can hold it. The gradient of a length of 0 is 0.
    float16 and bfloat16 are computed in float32, and rounded once.

    Args:
      x: floating or complex.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced.
      output_shape: the dimensions that are left, in order.
      ord: 2 for the Euclidean length, 1 for the sum of absolute values, `math.inf` for the largest of them.

    Raises:
      ShapeError: x lacks a dimension, or `output_shape` and `reduced_dim` are both given.
      UsageError: `ord` is another number.
      DtypeError: x is of integers or bool.

    Examples:
      >>> vector = mtf.constant(mesh, [3.0, -4.0], "n:2")
      >>> value(mtf.norm(vector)), value(mtf.norm(vector, ord=1)), value(mtf.norm(vector, ord=np.inf))
      (np.float32(5.0), np.float32(7.0), np.float32(4.0))
      >>> mtf.norm(x, reduced_dim="hidden").shape
      Shape[batch:4]
    """
    require(check_tensor(x), FLOATING)
    shape = reduced_shape(x, output_shape, reduced_dim)
    if ord not in (1, 2, math.inf):
        raise UsageError(f"ord is 1, 2 or math.inf, not {ord!r}; write others with mtf.abs, mtf.pow and mtf.reduce_sum")
    real = abs(x) if x.dtype.is_complex else x
    return cast(_length(cast(real, sum_dtype(real.dtype)), shape, ord), real.dtype)


def _length(x: Tensor, shape: Shape, order: float) -> Tensor:
    if order == 2:
        return root_of_squares(sum_of_squares(x, shape, name="norm"))
    return reduce_sum(abs(x), output_shape=shape) if order == 1 else reduce_max(abs(x), output_shape=shape)
