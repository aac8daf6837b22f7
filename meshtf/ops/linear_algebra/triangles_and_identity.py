"""Identity matrices, and the triangles of matrices."""

from __future__ import annotations

import operator

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import DimensionLike
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.elementwise.cast import cast
from meshtf.ops.elementwise.comparisons import equal, greater_equal, less_equal
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import range
from meshtf.takes_mesh import takes_mesh


@takes_mesh
def eye(mesh: Mesh, row_dim: DimensionLike, column_dim: DimensionLike, dtype: tf.DType = tf.float32) -> Tensor:
    """1 where the places along two dimensions are equal, else 0: [row_dim, column_dim].

    Args:
      mesh: the mesh of the result.
      row_dim: the first dimension.
      column_dim: the second dimension, of another name.
      dtype: the dtype of the result.

    Raises:
      ShapeError: the two have one name.

    Examples:
      >>> value(mtf.eye(mesh, ("rows", 2), ("columns", 3)))
      array([[1., 0., 0.],
             [0., 1., 0.]], dtype=float32)
    """
    return cast(equal(range(mesh, row_dim), range(mesh, column_dim)), dtype)


@language_function
def tril(x: Tensor, row_dim: DimensionLike, column_dim: DimensionLike, k: int = 0) -> Tensor:
    """x with zeros where the place along `column_dim` is more than `k` after that along `row_dim`.

    Args:
      x: a tensor of any dtype.
      row_dim: a dimension of x.
      column_dim: another one.
      k: 0 keeps the diagonal, -1 also removes it, 1 also keeps the next diagonal.

    Raises:
      ShapeError: x lacks a dimension.

    Examples:
      >>> value(mtf.tril(mtf.ones(mesh, "rows:2 columns:3"), "rows", "columns"))
      array([[1., 0., 0.],
             [1., 1., 0.]], dtype=float32)
    """
    row, column = _places(x, row_dim, column_dim)
    return where(less_equal(column, row + operator.index(k)), x, 0, output_shape=x.shape)


@language_function
def triu(x: Tensor, row_dim: DimensionLike, column_dim: DimensionLike, k: int = 0) -> Tensor:
    """x with zeros where the place along `column_dim` is less than `k` after that along `row_dim`.

    Args:
      x: a tensor of any dtype.
      row_dim: a dimension of x.
      column_dim: another one.
      k: 0 keeps the diagonal, 1 also removes it, -1 also keeps the diagonal before.

    Raises:
      ShapeError: x lacks a dimension.

    Examples:
      >>> value(mtf.triu(mtf.ones(mesh, "rows:2 columns:3"), "rows", "columns", k=1))
      array([[0., 1., 1.],
             [0., 0., 1.]], dtype=float32)
    """
    row, column = _places(x, row_dim, column_dim)
    return where(greater_equal(column, row + operator.index(k)), x, 0, output_shape=x.shape)


def _places(x: Tensor, row_dim: DimensionLike, column_dim: DimensionLike) -> tuple[Tensor, Tensor]:
    row, column = (reduced_dimension(check_tensor(x), dim) for dim in (row_dim, column_dim))
    return range(x.mesh, row), range(x.mesh, column)
