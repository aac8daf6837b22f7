"""Batched linear algebra over two named dimensions of a matrix, which every core has whole; the others may be split."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph import Operation, Tensor, check_tensor, same_dtype
from meshtf.layout import TensorLayout
from meshtf.ops.algebra.broadcasting import aligner, union
from meshtf.ops.algebra.einsum import broadcast, layout_over
from meshtf.ops.algebra.reduction import reduced_dimension
from meshtf.ops.linear_algebra.linear_algebra_gradients import (
    cholesky_gradient,
    qr_gradient,
    triangular_solve_gradient,
)
from meshtf.ops.order.whole import whole_splits
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner

_DTYPES = (tf.float32, tf.float64, tf.complex64, tf.complex128)


class CholeskyOperation(Operation):
    """The lower triangular L of a positive definite matrix L L^H. The matrix dimensions are whole on every core.

    Of another matrix the factor has NaNs. TensorFlow says nothing of it; the step is checked for them, and assigns
    nothing.
    """

    def __init__(self, x: Tensor, rows: Dimension, columns: Dimension, name: str) -> None:
        super().__init__([x], [(x.shape, x.dtype)], name=name)
        self.rows, self.columns = rows, columns

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [cholesky_gradient(self.outputs[0], check_tensor(grad_ys[0]), self.rows, self.columns)]

    def lower(self, planner: Planner) -> None:
        (x,), (y,) = self.inputs, self.outputs
        layout = layout_over(x.shape, whole_splits(planner, [x], [self.rows.name, self.columns.name], [y]))
        matrices = _matrices(x.shape, self.rows, self.columns)
        to_matrices, back = aligner(x.shape, matrices), aligner(matrices, x.shape)
        value = planner.read(x, layout)

        def emit(core: Core, s: tf.Tensor) -> list[tf.Tensor]:
            factor = cholesky_or_nan(to_matrices(s))
            return [back(factor), tf.reduce_all(tf.math.real(tf.linalg.diag_part(factor)) > 0)]

        flops = math.prod(value.slice_shape) * self.rows.size // 3
        specs = [(y.shape, y.dtype, layout), (Shape([]), tf.bool, TensorLayout(()))]
        factor, flag = planner.compute("cholesky", emit, [value], specs, flops=flops)
        split = tuple(d.name for d in planner.mesh_shape if d.name in layout.used)
        matrix = f"the matrix over {self.rows.name} and {self.columns.name} in {x!r}"
        planner.check(f"{matrix} is not positive definite", planner.all_reduce(flag, split, "min"))
        planner.write(y, factor)


class TriangularSolveOperation(Operation):
    """The solution of a triangular system. The right side has all dimensions of the matrix but the solution's."""

    def __init__(
        self,
        matrix: Tensor,
        rhs: Tensor,
        dims: tuple[Dimension, Dimension],
        *,
        lower: bool,
        adjoint: bool,
        name: str,
    ) -> None:
        known, solved = reversed(dims) if adjoint else dims
        shape = Shape([solved if d.name == known.name else d for d in rhs.shape])
        super().__init__([matrix, rhs], [(shape, rhs.dtype)], name=name)
        self.dims, self.is_lower, self.is_adjoint = dims, lower, adjoint

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return triangular_solve_gradient(
            self.inputs[0],
            self.outputs[0],
            check_tensor(grad_ys[0]),
            self.dims,
            lower=self.is_lower,
            adjoint=self.is_adjoint,
        )

    def lower(self, planner: Planner) -> None:
        (matrix, rhs), (y,), (rows, columns) = self.inputs, self.outputs, self.dims
        known, solved = (columns, rows) if self.is_adjoint else (rows, columns)
        splits = whole_splits(planner, self.inputs, [rows.name, columns.name], [y])
        values = [planner.read(x, layout_over(x.shape, splits)) for x in self.inputs]
        layout = layout_over(y.shape, splits)
        matrices = _matrices(matrix.shape, rows, columns)
        batch = matrices.dims[:-2]
        rest = [d for d in rhs.shape if d not in batch and d.name != known.name]
        sides, solutions = Shape([*batch, known, *rest]), Shape([*batch, solved, *rest])
        to_matrices, to_sides = aligner(matrix.shape, matrices), aligner(rhs.shape, sides)
        back, size = (
            aligner(solutions, y.shape),
            layout_over(solutions, splits).slice_shape(solutions, planner.mesh_shape),
        )
        is_lower, is_adjoint, flat = (
            self.is_lower,
            self.is_adjoint,
            [*size[: len(batch) + 1], math.prod(size[len(batch) + 1 :])],
        )

        def emit(core: Core, a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
            b = tf.reshape(to_sides(b), flat)
            return back(tf.reshape(tf.linalg.triangular_solve(to_matrices(a), b, is_lower, is_adjoint), size))

        spec, flops = (y.shape, y.dtype, layout), math.prod(size) * rows.size
        planner.write(y, planner.compute("triangular_solve", emit, values, [spec], flops=flops)[0])


class QrOperation(Operation):
    """Orthonormal columns Q and an upper triangular R with Q R = x, which has at least as many rows as columns."""

    def __init__(self, x: Tensor, rows: Dimension, columns: Dimension, inner: Dimension, name: str) -> None:
        q = Shape([inner if d.name == columns.name else d for d in x.shape])
        r = Shape([inner if d.name == rows.name else d for d in x.shape])
        super().__init__([x], [(q, x.dtype), (r, x.dtype)], name=name)
        self.rows, self.columns, self.inner = rows, columns, inner

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        q, r = self.outputs
        dx = qr_gradient((q, r), (grad_ys[0], grad_ys[1]), self.rows, self.columns, self.inner)
        return [dx]

    def lower(self, planner: Planner) -> None:
        (x,), rows, columns, inner = self.inputs, self.rows, self.columns, self.inner
        splits = whole_splits(planner, [x], [rows.name, columns.name, inner.name], self.outputs)
        value = planner.read(x, layout_over(x.shape, splits))
        matrices = _matrices(x.shape, rows, columns)
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


def cholesky_or_nan(x: tf.Tensor) -> tf.Tensor:
    """The factors of [.., n, n]; with NaNs on the diagonal where a matrix is not positive definite.

    Where TensorFlow's kernel finds no factor it leaves memory as it was above the diagonal of a real matrix, and
    everywhere in a complex one. So a complex matrix is factorized as a real one of blocks [[re, -im], [im, re]]; its
    factor, which is unique, has such blocks as well.
    """
    if not x.dtype.is_complex:
        return tf.linalg.band_part(tf.linalg.cholesky(x), -1, 0)
    re, im = tf.math.real(x), tf.math.imag(x)
    im = tf.linalg.set_diag(im, tf.zeros_like(tf.linalg.diag_part(im)))
    blocks = tf.stack([tf.stack([re, -im], -1), tf.stack([im, re], -1)], -3)  # [.., n, 2, n, 2]
    size = x.shape.as_list()
    factor = tf.linalg.cholesky(tf.reshape(blocks, [*size[:-2], 2 * size[-2], 2 * size[-1]]))
    return tf.linalg.band_part(tf.complex(factor[..., ::2, ::2], factor[..., 1::2, ::2]), -1, 0)


@language_function
def cholesky(
    x: Tensor, rows_dim: DimensionLike | str, columns_dim: DimensionLike | str, name: str | None = None
) -> Tensor:
    """The lower triangular L, over the dimensions of x, with the sum over columns of L[i, k] conj(L[j, k]) = x[i, j].

    Of x, Hermitian and positive definite for each index of its other dimensions, the lower triangle is read. A step in
    which a matrix is not positive definite, or has a NaN, assigns nothing and raises NonFiniteError (see
    `check_finite`).

    Raises:
      ShapeError: x lacks a dimension, or they have different sizes.
      DtypeError: x is not float32, float64, complex64 or complex128.
    """
    rows, columns = _square(x, rows_dim, columns_dim)
    return CholeskyOperation(x, rows, columns, name or "cholesky").outputs[0]


@language_function
def triangular_solve(
    matrix: Tensor,
    rhs: Tensor,
    rows_dim: DimensionLike | str,
    columns_dim: DimensionLike | str,
    *,
    lower: bool = True,
    adjoint: bool = False,
    name: str | None = None,
) -> Tensor:
    """The y with the sum over columns of matrix[row, column] y[column, ...] = rhs[row, ...].

    With `adjoint` the y with the sum over rows of conj(matrix[row, column]) y[row, ...] = rhs[column, ...].

    Args:
      matrix: [.., rows, columns, ..], of which one triangle is read.
      rhs: with the dimension `rows_dim`, and y has `columns_dim` in its place; with `adjoint` the other way round. Its
        other dimensions are the matrix's own (a system each) or new ones (right sides of one system).
      rows_dim: of the matrix.
      columns_dim: of the matrix.
      lower: whether the matrix is lower triangular.
      adjoint: whether to solve with its adjoint.
      name: of the operation.

    Raises:
      ShapeError: a dimension is missing, the matrix is not square, or the right side has both dimensions.
      DtypeError: the dtypes differ, or are not float32, float64, complex64 or complex128.
    """
    rows, columns = _square(matrix, rows_dim, columns_dim)
    same_dtype([matrix, check_tensor(rhs, "right side")])
    known, solved = (columns, rows) if adjoint else (rows, columns)
    rhs.shape.axis(known)
    if rhs.shape.has(solved):
        raise ShapeError(f'the right side [{rhs.shape}] has dimension "{solved.name}", which the solution will have')
    batch = Shape([d for d in matrix.shape if d.name not in (rows.name, columns.name)])
    missing = [d for d in union([rhs.shape, batch]) if not rhs.shape.has(d)]
    rhs = broadcast(rhs, [*missing, *rhs.shape])
    return TriangularSolveOperation(
        matrix, rhs, (rows, columns), lower=lower, adjoint=adjoint, name=name or "triangular_solve"
    ).outputs[0]


@language_function
def qr(
    x: Tensor,
    rows_dim: DimensionLike | str,
    columns_dim: DimensionLike | str,
    inner_dim: str | Dimension,
    name: str | None = None,
) -> tuple[Tensor, Tensor]:
    """Q [.., rows, inner] with orthonormal columns and R [.., inner, columns], upper triangular, with Q R = x.

    `inner_dim` names the new dimension, as large as the columns. Gradients need a matrix of full rank.

    Raises:
      ShapeError: x lacks a dimension, has `inner_dim` already, or has fewer rows than columns.
      DtypeError: x is not float32, float64, complex64 or complex128.
    """
    rows, columns = _matrix_dims(x, rows_dim, columns_dim)
    if rows.size < columns.size:
        raise ShapeError(f"[{rows}] are fewer than [{columns}]; take the qr with the dimensions exchanged")
    inner = Dimension(inner_dim.name if isinstance(inner_dim, Dimension) else inner_dim, columns.size)
    if isinstance(inner_dim, Dimension) and inner_dim.size != inner.size:
        raise ShapeError(f'inner_dim "{inner.name}" has as many elements as the columns, {inner.size}')
    if x.shape.has(inner):
        raise ShapeError(f'[{x.shape}] has a dimension "{inner.name}" already; choose another name for inner_dim')
    q, r = QrOperation(x, rows, columns, inner, name or "qr").outputs
    return q, r


def _matrix_dims(
    x: Tensor, rows_dim: DimensionLike | str, columns_dim: DimensionLike | str
) -> tuple[Dimension, Dimension]:
    rows, columns = reduced_dimension(check_tensor(x), rows_dim), reduced_dimension(x, columns_dim)
    if rows.name == columns.name:
        raise ShapeError(f'rows and columns of a matrix are two dimensions, and "{rows.name}" is given for both')
    if x.dtype not in _DTYPES:
        wanted = ", ".join(d.name for d in _DTYPES)
        raise DtypeError(f"one of {wanted} is needed, not {x.dtype.name}; convert with mtf.cast")
    return rows, columns


def _square(x: Tensor, rows_dim: DimensionLike | str, columns_dim: DimensionLike | str) -> tuple[Dimension, Dimension]:
    rows, columns = _matrix_dims(x, rows_dim, columns_dim)
    if rows.size != columns.size:
        raise ShapeError(f"[{rows}] by [{columns}] is not square")
    return rows, columns


def _matrices(shape: Shape, rows: Dimension, columns: Dimension) -> Shape:
    return Shape([*(d for d in shape if d.name not in (rows.name, columns.name)), rows, columns])
