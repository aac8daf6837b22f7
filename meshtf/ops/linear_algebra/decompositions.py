"""Decompositions of matrices over two named dimensions, which every core has whole. Other dimensions may be split."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape, convert_to_shape, names_of
from meshtf.errors import NonFiniteError, ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.broadcasting import aligner
from meshtf.ops.linear_algebra._decomposition_gradients import cholesky_gradient, qr_gradient
from meshtf.ops.linear_algebra._matrices import matrices_last, matrix_dims, square_dims
from meshtf.ops.side_effects.first_place import Places, first_place
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.open_check import OpenCheck, failed_if, failure_spec
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over
from meshtf.planning.whole_dimensions import whole_because, whole_splits


class CholeskyOperation(Operation):
    """The lower triangular L of a positive definite matrix L L^H. The matrix dimensions are whole on every core.

    If a matrix is not positive definite, its factor has NaNs, and TensorFlow does not report it. Here the step checks
    for this, and then assigns nothing.
    """

    mapped = "by name"

    def __init__(self, x: Tensor, rows: Dimension, columns: Dimension, name: str) -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.rows, self.columns = rows, columns

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [cholesky_gradient(self.outputs[0], check_tensor(grad_ys[0]), self.rows, self.columns)]

    def gathers_because(self, layouts: LayoutTable) -> str:
        return whole_because(layouts, self.inputs, [self.rows.name, self.columns.name], "a factor needs a whole matrix")

    def lower(self, planner: Planner) -> None:
        (x,), (y,) = self.inputs, self.outputs
        layout = layout_over(x.shape, whole_splits(planner, [x], [self.rows.name, self.columns.name], [y]))
        matrices = matrices_last(x.shape, self.rows, self.columns)
        to_matrices, back = aligner(x.shape, matrices), aligner(matrices, x.shape)
        value = planner.read(x, layout)

        def emit(core: Core, s: tf.Tensor) -> list[tf.Tensor]:
            factor = cholesky_or_nan(to_matrices(s))
            return [back(factor), failed_if(tf.reduce_any(_has_no_factor(factor)))]

        flops = math.prod(value.slice_shape) * self.rows.size // 3
        split = tuple(d.name for d in planner.mesh_shape if d.name in layout.used)
        specs = [(y.shape, y.dtype, layout), failure_spec(split)]
        factor, failures = planner.compute("cholesky", emit, [value], specs, flops=flops)
        batch = Shape(matrices.dims[:-2])
        places = Places.of(batch, restricted(layout, x.shape, batch), planner)
        finding = first_place(planner, places, [factor], lambda s: _has_no_factor(to_matrices(s)))
        matrix = f"the matrix over {self.rows.name} and {self.columns.name} in {x!r}"
        message = f"{matrix} is not positive definite"
        planner.checks.add(OpenCheck(self, message, failures, NonFiniteError, bool(batch.dims), finding))
        planner.write(y, factor)


class QrOperation(Operation):
    """Orthonormal columns Q and an upper triangular R with Q R = x, which has at least as many rows as columns."""

    mapped = "by name"

    def __init__(self, x: Tensor, rows: Dimension, columns: Dimension, inner: Dimension, name: str) -> None:
        q = Shape([inner if d.name == columns.name else d for d in x.shape])
        r = Shape([inner if d.name == rows.name else d for d in x.shape])
        super().__init__([x], [(q, x.dtype), (r, x.dtype)], name=name)
        self.rows, self.columns, self.inner = rows, columns, inner

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        q, r = self.outputs
        dx = qr_gradient((q, r), (grad_ys[0], grad_ys[1]), self.rows, self.columns, self.inner)
        return [dx]

    def gathers_because(self, layouts: LayoutTable) -> str:
        return whole_because(layouts, self.inputs, [self.rows.name, self.columns.name], "factors need a whole matrix")

    def lower(self, planner: Planner) -> None:
        (x,), rows, columns, inner = self.inputs, self.rows, self.columns, self.inner
        splits = whole_splits(planner, [x], [rows.name, columns.name, inner.name], self.outputs)
        value = planner.read(x, layout_over(x.shape, splits))
        matrices = matrices_last(x.shape, rows, columns)
        batch = matrices.dims[:-2]
        to_matrices = aligner(x.shape, matrices)
        from_q = aligner(Shape([*batch, rows, inner]), self.outputs[0].shape)
        from_r = aligner(Shape([*batch, inner, columns]), self.outputs[1].shape)

        def emit(core: Core, s: tf.Tensor) -> list[tf.Tensor]:
            q, r = tf.linalg.qr(to_matrices(s))
            return [from_q(q), from_r(r)]

        specs = [(y.shape, y.dtype, layout_over(y.shape, splits)) for y in self.outputs]
        flops = 2 * math.prod(value.slice_shape) * columns.size
        for y, result in zip(self.outputs, planner.compute("qr", emit, [value], specs, flops=flops), strict=True):
            planner.write(y, result)


def _has_no_factor(factors: tf.Tensor) -> tf.Tensor:
    """bool [..]: whether a matrix was not positive definite, from the factors [.., n, n] of `cholesky_or_nan`."""
    return tf.logical_not(tf.reduce_all(tf.math.real(tf.linalg.diag_part(factors)) > 0, -1))


def cholesky_or_nan(x: tf.Tensor) -> tf.Tensor:
    """The factors of [.., n, n], with NaNs on the diagonal if a matrix is not positive definite.

    If TensorFlow's kernel finds no factor, it leaves old memory above the diagonal of a real matrix, and everywhere in
    a complex one. So a complex matrix is factorized as a real one of blocks [[re, -im], [im, re]]. Its factor, which is
    unique, has such blocks as well.
    """
    if not x.dtype.is_complex:
        return tf.linalg.band_part(tf.linalg.cholesky(x), -1, 0)
    re, im = tf.math.real(x), tf.math.imag(x)
    # A Hermitian matrix has a real diagonal. TensorFlow ignores imaginary parts there, and so must the blocks.
    im = tf.linalg.set_diag(im, tf.zeros_like(tf.linalg.diag_part(im)))
    blocks = tf.stack([tf.stack([re, -im], -1), tf.stack([im, re], -1)], -3)  # [.., n, 2, n, 2]
    size = x.shape.as_list()
    factor = tf.linalg.cholesky(tf.reshape(blocks, [*size[:-2], 2 * size[-2], 2 * size[-1]]))
    return tf.linalg.band_part(tf.complex(factor[..., ::2, ::2], factor[..., 1::2, ::2]), -1, 0)


@language_function
def cholesky(x: Tensor, rows_dim: DimensionLike, columns_dim: DimensionLike, name: str | None = None) -> Tensor:
    """The lower triangular L over the dimensions of x: the sum over columns of L[i, k] conj(L[j, k]) is x[i, j].

    Args:
      x: Hermitian and positive definite matrices, one for each index of its other dimensions. Their lower
        triangle is read. A step in which one is not positive definite, or has a NaN, assigns nothing and raises
        NonFiniteError (see `check_finite`).
      rows_dim: the matrices' rows.
      columns_dim: their columns, as many as rows.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, or they have different sizes.
      DtypeError: x is not float32, float64, complex64 or complex128.

    Examples:
      >>> matrix = mtf.constant(mesh, [[4.0, 2.0], [2.0, 5.0]], "rows:2 columns:2")
      >>> value(mtf.cholesky(matrix, "rows", "columns"))
      array([[2., 0.],
             [1., 2.]], dtype=float32)
    """
    rows, columns = square_dims(x, rows_dim, columns_dim)
    return CholeskyOperation(x, rows, columns, name or "cholesky").outputs[0]


@language_function
def qr(
    x: Tensor,
    rows_dim: DimensionLike,
    columns_dim: DimensionLike,
    inner_dim: DimensionLike,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Q [.., rows, inner] with orthonormal columns and R [.., inner, columns], upper triangular, with Q R = x.

    Args:
      x: matrices, one for each index of its other dimensions. Gradients need full rank.
      rows_dim: the matrices' rows.
      columns_dim: their columns, no more than rows.
      inner_dim: the name of the new dimension, which has the size of the columns.
      name: the operation's name.

    Raises:
      ShapeError: x lacks a dimension, has `inner_dim` already, or has fewer rows than columns.
      DtypeError: x is not float32, float64, complex64 or complex128.

    Examples:
      >>> matrices = mtf.zeros(mesh, "batch:3 rows:4 columns:2")
      >>> mtf.qr(matrices, "rows", "columns", inner_dim="inner")
      (qr [batch:3 rows:4 inner:2] float32, qr:1 [batch:3 inner:2 columns:2] float32)
    """
    rows, columns = matrix_dims(x, rows_dim, columns_dim)
    if rows.size < columns.size:
        raise ShapeError(f"there are fewer rows, [{rows}], than columns, [{columns}]; swap rows and columns")
    inner = Dimension(names_of([inner_dim])[0], columns.size)
    if convert_to_shape([inner_dim], Shape([inner])) != Shape([inner]):
        raise ShapeError(f'inner_dim "{inner.name}" must have as many elements as the columns, {inner.size}')
    if x.shape.has(inner):
        raise ShapeError(f'[{x.shape}] has a dimension "{inner.name}" already; choose another name for inner_dim')
    q, r = QrOperation(x, rows, columns, inner, name or "qr").outputs
    return q, r
