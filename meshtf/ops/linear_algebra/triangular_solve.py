"""Triangular systems of linear equations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, DimensionLike, Shape
from meshtf.errors import ShapeError
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.ops.algebra.broadcasting import aligner, union
from meshtf.ops.algebra.einsum import einsum
from meshtf.ops.algebra.elementwise_operation import conjugate
from meshtf.ops.algebra.transpose_and_broadcast import broadcast
from meshtf.ops.elementwise.comparisons import greater_equal, less_equal
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import range as positions
from meshtf.ops.linear_algebra._matrices import matrices_last, square_dims
from meshtf.planning.layouts.layout_table import LayoutTable
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.planning.splits import layout_over
from meshtf.planning.whole_dimensions import whole_because, whole_splits


class TriangularSolveOperation(Operation):
    """The solution of a triangular system. The right side has all dimensions of the matrix except the solution's."""

    mapped = "all inputs"

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
        # The adjoint exchanges rows and columns, so the right side is over the columns.
        known, solved = reversed(dims) if adjoint else dims
        shape = Shape([solved if d.name == known.name else d for d in rhs.shape])
        super().__init__([matrix, rhs], [(shape, rhs.dtype)], name=name)
        self.dims, self.is_lower, self.is_adjoint = dims, lower, adjoint

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return _triangular_solve_gradient(
            self.inputs[0],
            self.outputs[0],
            check_tensor(grad_ys[0]),
            self.dims,
            lower=self.is_lower,
            adjoint=self.is_adjoint,
        )

    def gathers_because(self, layouts: LayoutTable) -> str:
        return whole_because(layouts, self.inputs, [d.name for d in self.dims], "a system is solved row after row")

    def lower(self, planner: Planner) -> None:
        (matrix, rhs), (y,), (rows, columns) = self.inputs, self.outputs, self.dims
        known, solved = (columns, rows) if self.is_adjoint else (rows, columns)
        splits = whole_splits(planner, self.inputs, [rows.name, columns.name], [y])
        values = [planner.read(x, layout_over(x.shape, splits)) for x in self.inputs]
        layout = layout_over(y.shape, splits)
        matrices = matrices_last(matrix.shape, rows, columns)
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


@language_function
def triangular_solve(
    matrix: Tensor,
    rhs: Tensor,
    rows_dim: DimensionLike,
    columns_dim: DimensionLike,
    *,
    lower: bool = True,
    adjoint: bool = False,
    name: str | None = None,
) -> Tensor:
    """The y for which the sum over columns of matrix[row, column] y[column, ...] is rhs[row, ...].

    With `adjoint`, it is the y for which the sum over rows of conj(matrix[row, column]) y[row, ...] is rhs[column,
    ...].

    Args:
      matrix: [.., rows, columns, ..]. Only one triangle is read.
      rhs: the right side. It has `rows_dim`, and y has `columns_dim` in its place; with `adjoint` vice versa. Other
        dimensions that the matrix also has count systems; new ones count right sides of one system.
      rows_dim: the rows of the matrix.
      columns_dim: the columns of the matrix.
      lower: whether the matrix is lower triangular.
      adjoint: whether to solve with its adjoint.
      name: the operation's name.

    Raises:
      ShapeError: a dimension is missing, the matrix is not square, or the right side has both dimensions.
      DtypeError: the dtypes differ, or are not float32, float64, complex64 or complex128.

    Examples:
      >>> matrix = mtf.constant(mesh, [[2.0, 0.0], [1.0, 4.0]], "rows:2 columns:2")
      >>> y = mtf.triangular_solve(matrix, mtf.constant(mesh, [2.0, 9.0], "rows:2"), "rows", "columns")
      >>> y.shape, value(y)
      (Shape[columns:2], array([1., 2.], dtype=float32))
    """
    rows, columns = square_dims(matrix, rows_dim, columns_dim)
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


def _triangular_solve_gradient(
    matrix: Tensor, y: Tensor, dy: Tensor, dims: tuple[Dimension, Dimension], *, lower: bool, adjoint: bool
) -> list[Tensor]:
    """The gradients of the matrix and of the right side."""
    rows, columns = dims
    side = triangular_solve(matrix, dy, rows, columns, lower=lower, adjoint=not adjoint)
    first, second = (conjugate(side), y) if adjoint else (side, conjugate(y))
    slope = -einsum([first, second], output_shape=matrix.shape)
    # The other triangle is not read, so it has no gradient.
    keep = (greater_equal if lower else less_equal)(positions(y.mesh, rows), positions(y.mesh, columns))
    return [where(keep, slope, 0, output_shape=matrix.shape), side]
