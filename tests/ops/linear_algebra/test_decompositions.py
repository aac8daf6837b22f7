"""Cholesky and QR against TensorFlow, under layouts that split batch and matrix dimensions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, NonFiniteError, ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret, largest
from tests.house.sharpest import sharpest
from tests.ops.complex_gradients import check, complex_array

RNG = np.random.default_rng(0)
LAYOUTS = ["", "batch:rows", "i:rows", "i:cols;j:rows", "j:cols+rows", "batch:cols;i:rows"]


def _positive(is_complex: bool, batch: int = 4, n: int = 4) -> np.ndarray:
    x = complex_array(RNG, batch, n, n) if is_complex else RNG.standard_normal((batch, n, n))
    return x @ np.conj(np.swapaxes(x, 1, 2)) + 2 * n * np.eye(n)


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_cholesky(is_complex: bool) -> None:
    check(lambda x: mtf.cholesky(x, "i", "j"), lambda x: tf.linalg.cholesky(x),
          {"x": ("batch:4 i:4 j:4", _positive(is_complex))}, LAYOUTS, order=1)  # fmt: skip


@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
def test_of_a_complex_matrix_as_of_a_real_one_the_lower_triangle_is_read(is_complex: bool) -> None:
    x = _positive(is_complex)
    below, diagonal = np.tril(x, -1), x * np.eye(4)
    for other in (below + diagonal, below + diagonal + (1j if is_complex else 0) * np.eye(4), x + np.triu(x, 1)):
        found = interpret(lambda x: mtf.cholesky(x, "i", "j"), {"x": ("batch:4 i:4 j:4", other)}, "rows:1").results
        assert_close(found, np.linalg.cholesky(x), terms=(4, 4), magnitude=np.linalg.cond(x).max() * largest(x))


INDEFINITE = {
    "negative": np.diag([1.0, 2.0, -1.0]),
    "singular": np.diag([1.0, 0.0, 1.0]),
    "indefinite": np.array([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
    "NaN": np.full((3, 3), np.nan),
}


def _stepwise(x: mtf.Tensor, mesh: mtf.Mesh) -> mtf.Tensor:
    count = mtf.get_variable(mesh, "count", [], initializer=np.zeros([]))
    mtf.assign_add(count, mtf.ones(mesh, []))
    return mtf.reduce_sum(mtf.abs(mtf.cholesky(x, "i", "j")))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("kind", INDEFINITE)
def test_a_matrix_that_is_not_positive_definite(kind: str, dtype: Any) -> None:
    x = np.stack([np.eye(3)] * 3 + [INDEFINITE[kind]]).astype(dtype)
    for layout in ("", "batch:rows", "batch:rows+cols"):
        with pytest.raises(NonFiniteError) as raised:
            interpret(_stepwise, {"x": ("batch:4 i:3 j:3", x)}, "rows:2;cols:2", layout)
        text = str(raised.value)
        assert "the matrix over i and j in x [batch:4 i:3 j:3]" in text
        assert "is not positive definite" in text
        assert "in operation cholesky" in text
        assert f"at {__file__}:{_stepwise.__code__.co_firstlineno + 3} in _stepwise" in text


def test_such_a_matrix_on_virtual_cpus_ends_the_step_and_not_the_program() -> None:
    specs = {"x": mtf.TensorSpec("batch:8 i:3 j:3")}
    step = mtf.function(_stepwise, mtf.SpmdMeshImpl("all:8", "batch:all"), inputs=specs)
    good = np.stack([np.eye(3, dtype=np.float32)] * 8)
    bad = good.copy()
    bad[5, 1, 1] = -1
    assert step(x=good) == 24
    with pytest.raises(NonFiniteError, match=r"is not positive definite(.|\n)*in operation cholesky"):
        step(x=bad)
    assert step.variables["count"] == 1
    assert step(x=good) == 24
    assert step.variables["count"] == 2


def test_in_a_branch_that_is_not_taken_nothing_is_checked() -> None:
    def program(x: mtf.Tensor) -> mtf.Tensor:
        is_positive = mtf.greater(mtf.reduce_min(x), -0.5)
        return mtf.cond(is_positive, lambda: mtf.cholesky(x, "i", "j"), lambda: x)[0]

    bad = np.stack([INDEFINITE["negative"]] * 4)
    found = interpret(program, {"x": ("batch:4 i:3 j:3", bad)}, "rows:2", "batch:rows").results
    np.testing.assert_array_equal(found, bad)
    with pytest.raises(NonFiniteError, match="is not positive definite"):
        interpret(program, {"x": ("batch:4 i:3 j:3", np.maximum(bad, 0))}, "rows:2", "batch:rows")


def test_second_gradient_of_cholesky_by_finite_differences() -> None:
    a, b = _positive(False, 1)[0], RNG.standard_normal((4, 4))
    direction = b + b.T

    def gradient(x: mtf.Tensor) -> mtf.Tensor:
        y = mtf.cholesky(x, "i", "j")
        return mtf.gradients(mtf.reduce_sum(mtf.square(y) * mtf.sin(y)), [x])[0]

    def program(x: mtf.Tensor, d: mtf.Tensor) -> list[Any]:
        slope = gradient(x)
        return [slope, *mtf.gradients(mtf.reduce_sum(slope * d), [x])]

    def at(x: np.ndarray) -> list[np.ndarray]:
        return interpret(program, {"x": ("i:4 j:4", x), "d": ("i:4 j:4", direction)}, "rows:2", "i:rows").results

    step = 1e-5
    c = RNG.standard_normal((4, 4))
    along = c + c.T
    slopes = [np.sum(at(a + sign * step * along)[0] * direction) for sign in (1, -1)]
    expected = (slopes[0] - slopes[1]) / (2 * step)
    # The difference itself errs by some thousands of step**2, far above its rounding: no bound on rounding.
    np.testing.assert_allclose(np.sum(at(a)[1] * along), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("columns", "is_complex"), sharpest(itertools.product([4, 2], [False, True]), [(4, True), (2, False)])
)
def test_qr(columns: int, is_complex: bool) -> None:
    x = complex_array(RNG, 4, 4, columns) if is_complex else RNG.standard_normal((4, 4, columns))
    check(
        lambda x: list(mtf.qr(x, "i", "j", "k")),
        lambda x: list(tf.linalg.qr(x)),
        {"x": (f"batch:4 i:4 j:{columns}", x)},
        ["", "batch:rows", "i:cols;j:rows", "i:cols+rows", "batch:cols;i:rows", "k:rows"],
        order=1,
    )


def test_gradients_of_one_factor_alone() -> None:
    x = RNG.standard_normal((4, 4, 2))
    for which in (0, 1):
        check(lambda x: mtf.qr(x, "i", "j", "k")[which], lambda x: tf.linalg.qr(x)[which],  # noqa: B023
              {"x": ("batch:4 i:4 j:2", x)}, order=1)  # fmt: skip


def test_the_batch_takes_over_a_split() -> None:
    def kinds(layout: str) -> list[str]:
        done = interpret(lambda x: mtf.cholesky(mtf.identity(x), "i", "j"),
                         {"x": ("batch:4 i:4 j:4", _positive(False))}, "rows:2;cols:2", layout)  # fmt: skip
        return [c.step.kind for c in done.plan.collectives]

    assert kinds("batch:rows+cols") == ["all_reduce"]  # of one truth value: whether every factor was found
    assert kinds("i:rows") == ["all_to_all", "all_reduce", "all_to_all"]
    assert kinds("batch:cols;i:rows") == ["all_to_all", "all_reduce", "all_to_all"]


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, b: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.cholesky(x, "i", "j")
        return [y, mtf.triangular_solve(y, b, "i", "j"), mtf.qr(x, "i", "j", "k")[1]]

    inputs = {"x": ("batch:4 i:4 j:4", _positive(False)), "b": ("i:4 batch:4", RNG.standard_normal((4, 4)))}
    assert_layout_invariant(program, inputs, ["i:rows"])


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x, wide = mtf.placeholder(mesh, "i:4 j:4"), mtf.placeholder(mesh, "i:4 j:5")
    whole = mtf.placeholder(mesh, "i:4 j:4", tf.int32)
    before = len(mesh.graph.operations)
    cases = [
        (ShapeError, lambda: mtf.cholesky(x, "i", "k"), r'no dimension "k"'),
        (ShapeError, lambda: mtf.cholesky(x, "i", "i"), r'"i" is given for both'),
        (ShapeError, lambda: mtf.cholesky(wide, "i", "j"), r"\[i:4\] by \[j:5\] is not square"),
        (DtypeError, lambda: mtf.cholesky(whole, "i", "j"), r"is needed, not int32"),
        (ShapeError, lambda: mtf.qr(wide, "i", "j", "k"), r"fewer rows, \[i:4\], than columns, \[j:5\]"),
        (ShapeError, lambda: mtf.qr(x, "i", "j", "i"), r'has a dimension "i" already'),
    ]  # fmt: skip
    for kind, call, message in cases:
        with pytest.raises(kind, match=message):
            call()
    assert len(mesh.graph.operations) == before
