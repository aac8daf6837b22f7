"""Finds the two dimensions of a tensor that make up a matrix."""

from __future__ import annotations

import tensorflow as tf

from meshtf.dimension import Dimension, DimensionLike, Shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.reduction import reduced_dimension

_DTYPES = (tf.float32, tf.float64, tf.complex64, tf.complex128)


def matrix_dims(x: Tensor, rows_dim: DimensionLike, columns_dim: DimensionLike) -> tuple[Dimension, Dimension]:
    """The rows and the columns of the matrices in x.

    Raises:
      ShapeError: x lacks one, or both are the same dimension.
      DtypeError: x is not float32, float64, complex64 or complex128.
    """
    rows, columns = reduced_dimension(check_tensor(x), rows_dim), reduced_dimension(x, columns_dim)
    if rows.name == columns.name:
        raise ShapeError(f'the rows and columns of a matrix are two dimensions, but "{rows.name}" is given for both')
    if x.dtype not in _DTYPES:
        wanted = ", ".join(d.name for d in _DTYPES)
        raise DtypeError(f"one of {wanted} is needed, not {x.dtype.name}; convert with mtf.cast")
    return rows, columns


def square_dims(x: Tensor, rows_dim: DimensionLike, columns_dim: DimensionLike) -> tuple[Dimension, Dimension]:
    """The rows and the columns of square matrices in x.

    Raises:
      ShapeError, DtypeError: as for `matrix_dims`, or the sizes differ.
    """
    rows, columns = matrix_dims(x, rows_dim, columns_dim)
    if rows.size != columns.size:
        raise ShapeError(f"[{rows}] by [{columns}] is not square")
    return rows, columns


def matrices_last(shape: Shape, rows: Dimension, columns: Dimension) -> Shape:
    """The dimensions of `shape` with rows and columns last, as TensorFlow needs them."""
    return Shape([*(d for d in shape if d.name not in (rows.name, columns.name)), rows, columns])
