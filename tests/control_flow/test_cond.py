"""cond: values, gradients, variables, checks; in loops, with loops inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, NonFiniteError, ShapeError
from meshtf.testing import assert_close, assert_layout_invariant, interpret

BATCH, D, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("d", 4), mtf.Dimension("hidden", 8)
LAYERS = mtf.Dimension("layers", 3)
RNG = np.random.default_rng(2)
X, W = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 8)) / 2
INPUTS: dict[str, Any] = {"x": ("batch:4 d:4", X), "w": ("d:4 hidden:8", W)}
LAYOUTS = ["batch:rows;hidden:cols", "hidden:rows+cols", "d:rows;hidden:cols", "d:cols;batch:rows"]


def on_true(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
    y = mtf.einsum([mtf.tanh(mtf.einsum([x, w], reduced_dims=[D])), w], output_shape=x.shape)
    return [y, mtf.reduce_sum(mtf.square(y), output_shape=[D])]


def on_false(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor]:
    # The second result stands in another order, and does not use w.
    return [mtf.transpose(mtf.sin(x), [D, BATCH]), mtf.reduce_sum(x, output_shape=[D])]


@pytest.mark.parametrize("taken", [True, False])
def test_values_and_gradients(twins: Any, taken: bool) -> None:
    bound = -1e9 if taken else 1e9

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return mtf.cond(mtf.greater(mtf.reduce_sum(x), bound), lambda: on_true(x, w), lambda: on_false(x, w))

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        y, z = (on_true if taken else on_false)(x, w)
        return mtf.transpose(y, x.shape) + 0.0 * mtf.reduce_sum(w), z + 0.0 * mtf.reduce_sum(w)

    twins(program, plain, INPUTS, LAYOUTS)


def test_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        predicate = mtf.greater(mtf.reduce_sum(x), 0.0)
        first = mtf.cond(predicate, lambda: on_true(x, w), lambda: on_false(x, w))
        return first + mtf.cond(mtf.logical_not(predicate), lambda: on_true(x, w), lambda: on_false(x, w))

    inputs = {"x": ("batch:4 d:4", X.astype(np.float32)), "w": ("d:4 hidden:8", W.astype(np.float32))}
    assert_layout_invariant(program, inputs, ["batch:rows;hidden:cols"])


def test_results_overridden_in_one_branch(twins: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        predicate = mtf.greater(mtf.reduce_sum(w), -1e9)
        (y,) = mtf.cond(predicate, lambda: mtf.sin(mtf.with_layout(x, "d:rows")), lambda: mtf.replicate(x))
        return y * 2.0

    twins(program, lambda mesh, x, w: mtf.sin(x) * 2.0 + 0.0 * mtf.reduce_sum(w), INPUTS, ["batch:cols"], order=0)


def counting(mesh: mtf.Mesh, name: str) -> mtf.Tensor:
    return mtf.get_variable(mesh, name, [], tf.float64, initializer=np.array(1.0))


def test_only_the_branch_that_is_taken_assigns() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        a, b, c = (counting(mesh, name) for name in "abc")
        mtf.assign_add(a, mtf.reduce_sum(x))

        def first() -> mtf.Tensor:
            mtf.assign(a, mtf.read_variable(a) * 2.0)
            return mtf.assign_add(b, mtf.read_variable(a))

        def second() -> mtf.Tensor:
            mtf.assign(c, mtf.read_variable(a) * 3.0)
            return mtf.read_variable(c)

        (y,) = mtf.cond(mtf.greater(mtf.reduce_sum(x), 0.0), first, second)
        return y, mtf.read_variable(a), mtf.read_variable(b), mtf.read_variable(c)

    for sign in (1.0, -1.0):
        total = sign * 4
        a = (1 + total) * 2 if sign > 0 else 1 + total
        expected = [1 + a, a, 1 + a, 1.0] if sign > 0 else [3 * a, a, 1.0, 3 * a]
        for layout in ("", "d:rows+cols"):
            done = interpret(program, {"x": ("d:4", np.full(4, sign))}, "rows:2;cols:2", layout)
            assert done.results == tuple(expected)
            assert [done.variables[n] for n in "abc"] == expected[1:]


def test_the_gradient_uses_the_value_that_a_variable_had_in_the_branch() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        v = counting(mesh, "v")

        def first() -> mtf.Tensor:
            before = mtf.read_variable(v)
            return x * before * mtf.assign_add(v, mtf.ones(mesh, [], tf.float64))

        (y,) = mtf.cond(mtf.greater(mtf.reduce_sum(x), bound), first, lambda: x)
        mtf.assign_add(v, mtf.ones(mesh, [], tf.float64) * 100.0)
        return y, mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x])[0]

    for bound, factor in ((0.0, 2.0), (1e9, 1.0)):
        done = interpret(program, {"x": ("d:4", np.ones(4))}, "rows:2", "d:rows")
        assert_close(done.results[0], np.full(4, factor), terms=2)
        assert_close(done.results[1], np.full(4, 2 * factor**2), terms=4)
        assert done.variables["v"] == 101 + (bound == 0.0)


def test_checks_count_in_the_branch_that_is_taken() -> None:
    def program(x: mtf.Tensor) -> Any:
        v = mtf.get_variable(x.mesh, "v", [], initializer=np.array(0.0))
        mtf.assign_add(v, mtf.ones(x.mesh, []))
        good = mtf.greater(mtf.reduce_sum(x), 0.0)
        return mtf.cond(good, lambda: x, lambda: mtf.check_finite(mtf.log(x), "in the branch"))[0]

    impl = mtf.SpmdMeshImpl("rows:2;cols:2", "d:rows")
    step = mtf.function(program, impl, inputs={"x": mtf.TensorSpec([D])})
    step(x=np.ones(4, np.float32))
    with pytest.raises(NonFiniteError, match="in the branch"):
        step(x=-np.ones(4, np.float32))
    assert step.variables["v"] == 1.0


def scan_with_cond(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
    def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
        y = mtf.cond(mtf.greater(parts[0], 0.5), lambda: on_true(carried[0], w), lambda: on_false(carried[0], w))
        return [y[0]], [y[1] * parts[0]]

    weights = mtf.constant(mesh, np.array([0.0, 1.0, 2.0]), [LAYERS], tf.float64)
    return mtf.scan(body, x, weights, LAYERS)


def unrolled_with_cond(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
    sums = []
    for i, branch in enumerate([on_false, on_true, on_true]):
        y, z = branch(x, w)
        x = mtf.transpose(y, [BATCH, D])
        sums.append(z * float(i))
    return x, mtf.stack(sums, "layers")


def test_cond_in_scan(twins: Any) -> None:
    twins(scan_with_cond, unrolled_with_cond, INPUTS, LAYOUTS[:3])


def test_scan_in_cond(twins: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        def loop() -> list[mtf.Tensor]:
            (y,), (sums,) = scan_with_cond(mesh, x, w)
            return [y, sums]

        zeros = mtf.zeros(mesh, [LAYERS, D], tf.float64)
        return mtf.cond(mtf.less(mtf.reduce_sum(x), 1e9), loop, lambda: [x * 2.0, zeros])

    twins(program, unrolled_with_cond, INPUTS, LAYOUTS[:2])


def test_random_bits_in_a_branch_are_the_same_under_every_layout() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        (y,) = mtf.cond(mtf.less(mtf.reduce_sum(x), 1e9), lambda: mtf.dropout(x, True, rate=0.5), lambda: x)
        return y, mtf.gradients([mtf.reduce_sum(y)], [x])[0]

    y, grad = interpret(program, {"x": INPUTS["x"]}, "rows:1", "").results
    np.testing.assert_array_equal(y, X * grad)
    for layout in ("batch:rows", "d:cols;batch:rows"):
        results = interpret(program, {"x": INPUTS["x"]}, "rows:2;cols:2", layout).results
        for found, wanted in zip(results, (y, grad), strict=True):
            np.testing.assert_array_equal(found, wanted)


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "not a scalar": (lambda p, x: mtf.cond(mtf.less(x, 1.0), lambda: x, lambda: x), DtypeError,
                     r"the predicate must be a bool scalar, and is less_1 \[batch:4 d:4\] bool"),
    "not bool": (lambda p, x: mtf.cond(mtf.reduce_sum(x), lambda: x, lambda: x), DtypeError, "must be a bool scalar"),
    "numbers differ": (lambda p, x: mtf.cond(p, lambda: [x, x], lambda: x), ShapeError,
                       "true_fn returned 2 tensors and false_fn 1"),
    "shapes differ": (lambda p, x: mtf.cond(p, lambda: x, lambda: mtf.reduce_sum(x)), ShapeError,
                      r"true_fn returned \[batch:4 d:4\] where false_fn returned \[\]"),
    "dtypes differ": (lambda p, x: mtf.cond(p, lambda: x, lambda: mtf.cast(x, tf.bfloat16)), DtypeError,
                      "true_fn returned float32 where false_fn returned bfloat16"),
    "no tensor": (lambda p, x: mtf.cond(p, lambda: 1.0, lambda: x), GraphError, "true_fn must return mtf.Tensors"),
    "no predicate": (lambda p, x: mtf.cond(True, lambda: x, lambda: x), GraphError,
                     "the predicate must be an mtf.Tensor"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    call, error, message = BAD[case]
    mesh = mtf.Mesh(mtf.Graph())
    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        predicate = mtf.less(mtf.reduce_sum(x), 1.0)
        with pytest.raises(error, match=message) as raised:
            call(predicate, x)
    assert "test_cond.py:" in str(raised.value)
