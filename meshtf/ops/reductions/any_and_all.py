"""Whether any, or all, elements are true."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.errors import DtypeError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import ALL, ANY, reduce


@language_function
def reduce_any(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Whether any element is true, over `reduced_dim` or over the dimensions that `output_shape` lacks.

    Args:
      x: bool.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or `output_shape` and `reduced_dim` are both given.
      DtypeError: x is not bool.

    Examples:
      >>> mtf.reduce_any(x > 0.0, reduced_dim="hidden")
      reduce_any [batch:4] bool
    """
    _check_bool(x)
    return reduce(x, ANY, output_shape, reduced_dim, name)


@language_function
def reduce_all(
    x: Tensor,
    reduced_dim: ShapeLike | None = None,
    output_shape: ShapeLike | None = None,
    name: str | None = None,
) -> Tensor:
    """Whether all elements are true, over `reduced_dim` or over the dimensions that `output_shape` lacks.

    Args:
      x: bool.
      reduced_dim: the dimension to reduce, or several: "batch length", or a list. Without this and `output_shape`,
        all dimensions are reduced. Mesh TensorFlow takes it only by keyword.
      output_shape: the dimensions that are left, in order.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or `output_shape` and `reduced_dim` are both given.
      DtypeError: x is not bool.

    Examples:
      >>> mtf.reduce_all(x > 0.0, reduced_dim="hidden")
      reduce_all [batch:4] bool
    """
    _check_bool(x)
    return reduce(x, ALL, output_shape, reduced_dim, name)


def _check_bool(x: Tensor) -> None:
    if check_tensor(x).dtype != tf.bool:
        raise DtypeError(f"a bool tensor is needed, not {x.dtype.name}; compare first, as in mtf.not_equal(x, 0)")
