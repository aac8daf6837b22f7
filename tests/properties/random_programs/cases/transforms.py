"""Cases of Fourier transforms and linear algebra.

Complex numbers stay inside a step: its operands and results are real.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

import meshtf as mtf
from tests.properties.random_programs.builder import Builder, RejectedError
from tests.properties.random_programs.cases.elementwise import Case
from tests.properties.random_programs.program import Node, spread


def _wide_dtype(b: Builder) -> tf.DType:
    return b.dtype if b.dtype in (tf.float32, tf.float64) else tf.float32


def _along(function: Callable[[tf.Tensor], tf.Tensor], p: tf.Tensor, axes: list[int]) -> tf.Tensor:
    for axis in axes:
        p = tf.experimental.numpy.moveaxis(function(tf.experimental.numpy.moveaxis(p, axis, -1)), -1, axis)
    return p


def _axes(b: Builder, x: Node) -> list[int]:
    axes = list(range(x.shape.ndims))
    b.rng.shuffle(axes)
    return axes[: b.rng.randint(1, len(axes))]


def fourier(name: str) -> Case:
    def case(b: Builder) -> None:
        x = b.pick(_wide_dtype(b), least=1)
        if x.tensor.size > 200 and name == "fft":
            raise RejectedError
        axes = _axes(b, x)
        z = getattr(mtf, name)(mtf.complex(x.tensor, 0.5 * x.tensor), [x.names[a] for a in axes])

        def reference(p: tf.Tensor) -> list[tf.Tensor]:
            y = _along(getattr(tf.signal, name), tf.complex(p, 0.5 * p), axes)
            return [tf.math.real(y), tf.math.imag(y)]

        b.step(f"{name}[{axes}]", [x], [mtf.real(z), mtf.imag(z)], reference)

    return case


def rfft(b: Builder) -> None:
    """There, its numbers squared, and back."""
    x = b.pick(_wide_dtype(b), least=1)
    if x.tensor.size > 200 or not x.tensor.size:
        raise RejectedError
    *others, last = _axes(b, x)
    names, half, size = [x.names[a] for a in others], b.new_dim().name, x.shape[last].size
    y = mtf.rfft(x.tensor, [*names, x.names[last]], half)
    z = mtf.irfft(mtf.conj(y) * y, [*names, half], size, x.names[last])

    def reference(p: tf.Tensor) -> tf.Tensor:
        y = _along(tf.signal.fft, _along(tf.signal.rfft, p, [last]), others)
        y = _along(tf.signal.ifft, tf.math.conj(y) * y, others)
        return _along(lambda q: tf.signal.irfft(q, [size]), y, [last])

    b.step(f"rfft irfft[{names}, {x.names[last]}]", [x], z, reference)


def _matrix(b: Builder, rows: int, columns: int) -> tuple[Node, mtf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    """[batch, rows, columns], near enough to an identity: the operand, the tensor, and the same of the reference."""
    i, j = b.new_dim(rows), b.new_dim(columns)
    batch = b.shape(0, 1)
    if batch.size > 12:
        raise RejectedError
    x = b.fresh(mtf.Shape([*batch, i, j]), _wide_dtype(b), -0.7, 0.7)
    identity = mtf.cast(mtf.equal(mtf.range(b.mesh, i), mtf.range(b.mesh, j)), x.tensor.dtype)
    return x, x.tensor + 3.0 * identity, lambda p: p + 3.0 * tf.eye(rows, columns, dtype=p.dtype)


def cholesky(b: Builder) -> None:
    n = b.rng.choice([1, 2, 3, 4, 6])
    x, matrix, same = _matrix(b, n, n)
    i, j = x.names[-2:]
    other = mtf.rename_dimension(mtf.rename_dimension(matrix, j, f"{j}k"), i, j)
    square = mtf.einsum([mtf.rename_dimension(matrix, j, f"{j}k"), other], output_shape=x.shape)
    z = mtf.cholesky(square, i, j)
    b.step(f"cholesky[{i}, {j}]", [x], z, lambda p: tf.linalg.cholesky(tf.matmul(same(p), same(p), transpose_b=True)))


def triangular_solve(b: Builder) -> None:
    n = b.rng.choice([1, 2, 3, 4, 6])
    x, matrix, same = _matrix(b, n, n)
    lower, adjoint = b.chance(0.5), b.chance(0.5)
    known, solved = reversed(x.names[-2:]) if adjoint else x.names[-2:]
    batch, k = x.shape.dims[:-2], b.new_dim(b.rng.choice([1, 2, 4]))
    rhs = b.fresh(mtf.Shape([k, mtf.Dimension(known, n), *batch]), x.tensor.dtype)
    z = mtf.triangular_solve(matrix, rhs.tensor, *x.names[-2:], lower=lower, adjoint=adjoint)

    def reference(p: tf.Tensor, q: tf.Tensor) -> tf.Tensor:
        sides = spread(q, rhs.names, mtf.Shape([*batch, mtf.Dimension(known, n), k]))
        y = tf.linalg.triangular_solve(same(p), sides, lower, adjoint)
        return spread(y, [*(d.name for d in batch), solved, k.name], z.shape)

    b.step(f"triangular_solve[{x.names[-2:]}, {lower}, {adjoint}]", [x, rhs], z, reference)


def qr(b: Builder) -> None:
    columns = b.rng.choice([1, 2, 3, 4])
    x, matrix, same = _matrix(b, columns + b.rng.choice([0, 1, 4]), columns)
    z = mtf.qr(matrix, *x.names[-2:], b.new_dim(columns))
    b.step(f"qr[{x.names[-2:]}]", [x], z, lambda p: list(tf.linalg.qr(same(p))))


CASES: dict[str, Case] = {
    "fft": fourier("fft"),
    "ifft": fourier("ifft"),
    "rfft irfft": rfft,
    "cholesky": cholesky,
    "triangular_solve": triangular_solve,
    "qr": qr,
}
