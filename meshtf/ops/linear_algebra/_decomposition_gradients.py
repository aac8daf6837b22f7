"""Gradients of matrix decompositions, made of the language's own operations.

They are TensorFlow's: Murray (2016) for Cholesky, and Walter, Lehmann and Lamour (2012) for QR.
"""

from __future__ import annotations

from meshtf.dimension import Dimension, Shape, unused_name
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.arithmetic import sub
from meshtf.ops.algebra.einsum import einsum
from meshtf.ops.algebra.elementwise_operation import conjugate
from meshtf.ops.algebra.transpose_and_broadcast import transpose
from meshtf.ops.elementwise.comparisons import equal, greater, greater_equal
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import range as positions
from meshtf.ops.inputs.constants import zeros_like
from meshtf.ops.linear_algebra.triangular_solve import triangular_solve
from meshtf.ops.rearranging.reshape import rename_dimension


def cholesky_gradient(factor: Tensor, grad: Tensor, rows: Dimension, columns: Dimension) -> Tensor:
    """The gradient of a Cholesky factorization: the mean of S = L^-H P L^-1 and its adjoint.

    P is the lower triangle of L^H times `grad`, with its diagonal halved.
    """
    inner = Dimension(unused_name("inner", factor.shape), rows.size)
    other = Dimension(unused_name("other", factor.shape), rows.size)
    batch = _without(factor.shape, rows, columns)
    of_inner = rename_dimension(factor, columns.name, inner.name)
    p = einsum([conjugate(of_inner), grad], output_shape=[*batch, inner, columns])
    row, column = positions(factor.mesh, inner), positions(factor.mesh, columns)
    halved = where(equal(row, column), 0.5 * p, where(greater(row, column), p, 0), output_shape=p.shape)
    left = triangular_solve(of_inner, halved, rows, inner, adjoint=True)  # [rows, columns]
    of_other = rename_dimension(factor, rows.name, other.name)
    s = triangular_solve(of_other, conjugate(left), other, columns, adjoint=True)  # [other, rows]: S^H
    straight = rename_dimension(conjugate(s), other.name, columns.name)
    crossed = rename_dimension(rename_dimension(s, rows.name, columns.name), other.name, rows.name)
    return 0.5 * (transpose(straight, factor.shape) + transpose(crossed, factor.shape))


def qr_gradient(
    factors: tuple[Tensor, Tensor],
    grads: tuple[Tensor | None, Tensor | None],
    rows: Dimension,
    columns: Dimension,
    inner: Dimension,
) -> Tensor:
    """The gradient of a QR decomposition, for full rank and at least as many rows as columns."""
    q, r = factors
    dq, dr = (zeros_like(y) if dy is None else dy for y, dy in zip(factors, grads, strict=True))
    other = Dimension(unused_name("other", q.shape, r.shape), inner.size)
    batch = _without(q.shape, rows, inner)
    square, tall = Shape([*batch, inner, other]), Shape([*batch, rows, other])
    dq_other, r_other = (rename_dimension(y, inner.name, other.name) for y in (dq, r))
    q_dq = einsum([conjugate(q), dq_other], output_shape=square)
    r_dr = einsum([r, conjugate(rename_dimension(dr, inner.name, other.name))], output_shape=square)
    row, column = positions(q.mesh, inner), positions(q.mesh, other)
    skew = sub(q_dq, _adjoint(q_dq, inner, other)) + sub(r_dr, _adjoint(r_dr, inner, other))
    triangle = where(greater_equal(row, column), skew, 0, output_shape=square)
    inside = dr + transpose(_over_adjoint(triangle, r_other, other, columns), dr.shape)
    outside = transpose(dq_other, tall) - einsum([q, q_dq], output_shape=tall)
    if q.dtype.is_complex:
        diagonal = where(equal(row, column), sub(r_dr, _adjoint(q_dq, inner, other)), 0, output_shape=square)
        imaginary = 0.5 * sub(conjugate(diagonal), diagonal)
        outside = outside + einsum([q, imaginary], output_shape=tall)
    shape = Shape([columns if d.name == inner.name else d for d in q.shape])
    return einsum([q, inside], output_shape=shape) + transpose(_over_adjoint(outside, r_other, other, columns), shape)


def _over_adjoint(x: Tensor, r: Tensor, inner: Dimension, columns: Dimension) -> Tensor:
    """x R^-H: x [.., inner] and the upper triangular R [inner, columns] give [.., columns]."""
    return conjugate(triangular_solve(r, conjugate(x), inner, columns, lower=False))


def _adjoint(x: Tensor, rows: Dimension, columns: Dimension) -> Tensor:
    between = unused_name("between", x.shape)
    x = rename_dimension(rename_dimension(x, rows.name, between), columns.name, rows.name)
    return conjugate(rename_dimension(x, between, columns.name))


def _without(shape: Shape, *dims: Dimension) -> list[Dimension]:
    names = {d.name for d in dims}
    return [d for d in shape if d.name not in names]
