"""Numbers of elements."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduce_sum
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import not_equal


@language_function
def count_nonzero(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """How many elements are not 0, or are true, over `reduced_dim` or over the dimensions that `output_shape` lacks.

    Args:
      x: a tensor of any dtype. NaN is not 0.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Returns:
      int32.

    Raises:
      ShapeError: x lacks a dimension, or `output_shape` and `reduced_dim` are both given.

    Examples:
      >>> value(mtf.count_nonzero(mtf.constant(mesh, [0.0, 2.0, -1.0], "n:3")))
      np.int32(2)
      >>> mtf.count_nonzero(x > 0.0, "hidden").shape
      Shape[batch:4]
    """
    is_counted = x if check_tensor(x).dtype == tf.bool else not_equal(x, 0)
    return reduce_sum(cast(is_counted, tf.int32), reduced_dim, output_shape, name)
