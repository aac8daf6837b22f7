"""while_loop: values, pending sums, accumulators, variables, checks, gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, NonFiniteError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, assert_layout_invariant, interpret
from tests.built_program import BuiltProgram
from tests.house.sharpest import sharpest

BATCH, D, HIDDEN = mtf.Dimension("batch", 4), mtf.Dimension("d", 4), mtf.Dimension("hidden", 8)
RNG = np.random.default_rng(1)
X, W = RNG.normal(size=(4, 4)), RNG.normal(size=(4, 8)) / 2
INPUTS: dict[str, Any] = {"x": ("batch:4 d:4", X), "w": ("d:4 hidden:8", W)}
LAYOUTS = ["hidden:rows", "hidden:rows+cols", "batch:rows;hidden:cols", "d:rows;hidden:cols", "d:cols;batch:rows"]


def product(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
    """x W W^T: a sum over cores where `hidden` is split."""
    return mtf.einsum([mtf.einsum([x, w], reduced_dims=[D]), w], output_shape=x.shape)


def repeat(mesh: mtf.Mesh, times: int, body: Callable[..., Any], values: list[mtf.Tensor], **options: Any) -> Any:
    """`body` so many times; without the counter that goes round with the values."""
    n = mtf.zeros(mesh, [], tf.int32)
    step = lambda n, *own: (n + 1, *body(*own))  # noqa: E731
    return mtf.while_loop(lambda n, *own: mtf.less(n, times), step, [n, *values], **options)[1:]


@pytest.mark.parametrize("mesh", sharpest(["rows:2;cols:2", "rows:4;cols:1", "rows:2;cols:4"], ["rows:2;cols:4"]))
def test_a_value_that_is_a_pending_sum(mesh: str) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        return repeat(mesh, 3, lambda x: [product(x, w)], [x])[0]

    expected = X @ np.linalg.matrix_power(W @ W.T, 3)
    built = BuiltProgram(program, INPUTS)
    for layout in ["", *LAYOUTS]:
        assert_close(built.interpret(mesh, layout).results, expected, terms=3 * (4 + 8), what=layout)


def test_a_single_value_on_virtual_cpus() -> None:
    def program(x: mtf.Tensor, w: mtf.Tensor) -> Any:
        going = lambda x: mtf.less(mtf.reduce_max(mtf.abs(x)), 100.0)  # noqa: E731
        return mtf.while_loop(going, lambda x: [product(x, w)], x, maximum_iterations=6)[0]

    inputs = {"x": ("batch:4 d:4", X.astype(np.float32)), "w": ("d:4 hidden:8", W.astype(np.float32))}
    assert_layout_invariant(program, inputs, ["batch:rows;hidden:cols"])


def test_gradients_with_accumulators(twins: Any) -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        y = mtf.tanh(product(x, w))
        return y, mtf.reduce_sum(mtf.square(y) + x, output_shape=[D])

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        options = {"has_accumulators": True, "maximum_iterations": 5, "recompute": recompute}
        return repeat(mesh, 3, lambda x: body(x, w), [x], **options)

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        total = mtf.zeros(mesh, [D], tf.float64)
        for _ in range(3):
            x, term = body(x, w)
            total += term
        return x, total

    for recompute in (None, True):
        twins(program, plain, INPUTS, LAYOUTS[2:4] if recompute else LAYOUTS)


@pytest.mark.parametrize("most", [0, 5])
def test_no_iteration(twins: Any, most: int) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        times = 0 if most else 3
        body = lambda x: [mtf.tanh(product(x, w)), mtf.reduce_sum(x)]  # noqa: E731
        return repeat(mesh, times, body, [x], has_accumulators=True, maximum_iterations=most)

    def plain(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        nothing = mtf.reduce_sum(mtf.tanh(product(x, w))) * 0.0
        return x + nothing, nothing

    twins(program, plain, INPUTS, ["batch:rows;hidden:cols"])


def test_a_maximum_beyond_32_bits_is_never_reached() -> None:
    def program(x: mtf.Tensor) -> Any:
        return mtf.while_loop(lambda y: mtf.less(y, 100.0), lambda y: [y * 2.0], x, maximum_iterations=2**40)

    step = mtf.function(program, mtf.SpmdMeshImpl("all:1", ""), inputs={"x": mtf.TensorSpec([])})
    assert step(x=1.0)[0] == 128.0


def test_only_so_many_values_are_returned() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        n = mtf.zeros(mesh, [], tf.int32)
        options = {"has_accumulators": True, "num_loop_vars": 2}
        body = lambda n, y, z: [n + 1, y + z, z * 2.0, y]  # noqa: E731
        return mtf.while_loop(lambda n, y, z: mtf.less(n, 3), body, [n, x, x], **options)

    n, y, total = interpret(program, {"x": INPUTS["x"]}, "rows:2;cols:2", "batch:rows").results
    assert n == 3
    assert_close(y, 8 * X, terms=3)
    assert_close(total, (1 + 2 + 4) * X, terms=3)


def test_an_accumulator_that_stays_pending_is_reduced_once(count_collectives: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        total = repeat(
            mesh, 7, lambda x: [x * 0.5, mtf.einsum([x, w], reduced_dims=[D])], [x],
            has_accumulators=True, maximum_iterations=7,
        )[1]  # fmt: skip
        return mtf.tanh(total)

    done = interpret(program, INPUTS, "rows:2;cols:2", "d:rows")
    assert count_collectives(done.plan) == {"all_reduce": 1}
    assert_close(done.results, np.tanh(sum(X @ W * 0.5**i for i in range(7))), terms=(7 * 4, FUNCTION_TERMS))


def test_two_accumulators_that_are_added_are_reduced_together(count_collectives: Any) -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        term = lambda x: mtf.einsum([x, w], reduced_dims=[D])  # noqa: E731
        a, b = repeat(
            mesh, 3, lambda x: [x * 0.5, term(x), term(mtf.sin(x))], [x], has_accumulators=True, maximum_iterations=3
        )[1:]
        return mtf.tanh(a + b + term(x))

    done = interpret(program, INPUTS, "rows:2;cols:2", "d:rows")
    assert count_collectives(done.plan) == {"all_reduce": 1}


def test_what_is_captured_is_moved_once(count_collectives: Any) -> None:
    """A pending sum, and a tensor that the body needs whole, are brought in before the loop."""

    def program(mesh: mtf.Mesh, x: mtf.Tensor, w: mtf.Tensor) -> Any:
        pending = mtf.einsum([x, w], reduced_dims=[D])  # [batch, hidden], a sum over rows
        table = mtf.sin(w)  # [d:rows, hidden]

        def body(y: mtf.Tensor) -> list[mtf.Tensor]:
            return [mtf.tanh(y + pending) * mtf.reduce_sum(mtf.replicate(table)) + mtf.sin(pending)]

        return repeat(mesh, 5, body, [mtf.zeros_like(pending)], maximum_iterations=5)[0]

    done = interpret(program, INPUTS, "rows:2;cols:2", "d:rows")
    assert count_collectives(done.plan) == {"all_reduce": 1, "all_gather": 1}
    y = 0.0
    for _ in range(5):
        y = np.tanh(y + X @ W) * np.sin(W).sum() + np.sin(X @ W)
    assert_close(done.results, y, terms=5 * (4 + 4 * 8 + 3 * FUNCTION_TERMS))


def test_variables_are_assigned_and_read_in_program_order(twins: Any) -> None:
    def step(v: mtf.Tensor, x: mtf.Tensor) -> mtf.Tensor:
        before = mtf.read_variable(v)
        after = mtf.assign_add(v, x * before)
        mtf.assign(v, mtf.tanh(after) + mtf.read_variable(v))
        return x * mtf.read_variable(v) + before

    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        v = mtf.get_variable(mesh, "v", [BATCH, D], tf.float64, initializer=X / 3)
        mtf.assign_add(v, x)
        going = lambda y: mtf.less(mtf.reduce_max(mtf.read_variable(v)), 1e9)  # noqa: E731
        (y,) = mtf.while_loop(going, lambda y: [step(v, y)], x, maximum_iterations=3, recompute=recompute)
        return y, mtf.read_variable(v)

    def plain(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        v = mtf.get_variable(mesh, "v", [BATCH, D], tf.float64, initializer=X / 3)
        mtf.assign_add(v, x)
        y = x
        for _ in range(3):
            y = step(v, y)
        return y, mtf.read_variable(v)

    for recompute in (None, True):  # noqa: B007 - the program reads it
        # A variable's value, as another iteration left it, is a constant to the gradient of a loop.
        twins(program, plain, {"x": INPUTS["x"]}, ["batch:rows", "d:cols;batch:rows"], order=0)


def test_recomputation_uses_the_value_that_a_variable_had() -> None:
    def program(mesh: mtf.Mesh, x: mtf.Tensor) -> Any:
        v = mtf.get_variable(mesh, "v", [], tf.float64, initializer=np.array(2.0))

        def body(y: mtf.Tensor) -> list[mtf.Tensor]:
            value = mtf.read_variable(v)
            mtf.assign_add(v, mtf.ones(mesh, [], tf.float64))
            return [y * mtf.exp(value * 0.1)]

        y = repeat(mesh, 3, body, [x], maximum_iterations=4, recompute=recompute)[0]
        return mtf.gradients([mtf.reduce_sum(y)], [x])[0]

    for recompute in (None, "products", True):  # noqa: B007 - the program reads it
        done = interpret(program, {"x": INPUTS["x"]}, "rows:2", "d:rows")
        assert_close(done.results, np.full((4, 4), np.exp(0.2 + 0.3 + 0.4)), terms=3 * FUNCTION_TERMS)
        assert done.variables["v"] == 5.0


def test_a_condition_reads_what_the_body_assigned() -> None:
    def program(mesh: mtf.Mesh) -> Any:
        v = mtf.get_variable(mesh, "v", [], tf.float32, initializer=np.array(1.0))
        n = mtf.zeros(mesh, [], tf.int32)

        def body(n: mtf.Tensor) -> list[mtf.Tensor]:
            mtf.assign(v, mtf.read_variable(v) * 2.0)
            return [n + 1]

        return mtf.while_loop(lambda n: mtf.less(mtf.read_variable(v), 20.0), body, n)[0]

    done = interpret(program, {}, "rows:2", "")
    assert (done.results, done.variables["v"]) == (5, 32.0)


def test_checks_in_loops_name_their_line() -> None:
    def program(x: mtf.Tensor) -> Any:
        v = mtf.get_variable(x.mesh, "v", [BATCH, D], initializer=np.ones((4, 4)))

        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> Any:
            y = mtf.check_finite(mtf.log(carried[0]), "in the loop")
            mtf.assign_add(v, y)
            return [y - 1.0], []

        return mtf.scan(body, x, [], HIDDEN)[0][0]

    inputs = {"x": mtf.TensorSpec([BATCH, D])}
    step = mtf.function(program, mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;d:cols"), inputs=inputs)
    with pytest.raises(NonFiniteError, match="in the loop: a NaN or an infinity in log") as raised:
        step(x=np.ones((4, 4), np.float32))
    assert "test_while_loop.py" in str(raised.value)
    np.testing.assert_array_equal(step.variables["v"], np.ones((4, 4)))


def test_random_bits_of_the_condition_differ_by_iteration() -> None:
    """Each toss is its own: under one seed of twenty at least, the loop ends after some, but not after none or all."""

    def program(mesh: mtf.Mesh) -> Any:
        toss = lambda n: mtf.less(mtf.random_uniform(mesh, []), 0.8)  # noqa: E731
        return mtf.while_loop(toss, lambda n: [n + 1], mtf.zeros(mesh, [], tf.int32), maximum_iterations=50)[0]

    counts = {int(interpret(program, {}, "rows:2", "", seed=seed).results) for seed in range(8)}
    assert counts - {0, 50}


def test_called_in_a_tf_function() -> None:
    def program(x: mtf.Tensor) -> Any:
        v = mtf.get_variable(x.mesh, "v", [D], initializer=np.zeros(4))
        (y,) = mtf.while_loop(
            lambda y: mtf.less(mtf.reduce_sum(y), 100.0), lambda y: [y + mtf.reduce_sum(y, output_shape=[D])], x
        )
        mtf.assign_add(v, mtf.reduce_sum(y, output_shape=[D]))
        return y

    impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;d:cols")
    step = mtf.function(program, impl, inputs={"x": mtf.TensorSpec([BATCH, D])})

    @tf.function
    def train(x: tf.Tensor) -> tf.Tensor:
        total = tf.zeros([4, 4])
        for _ in tf.range(3):
            total += step(x=x)
        return total

    y = np.ones((4, 4), np.float32)
    while y.sum() < 100:
        y = y + y.sum(0)
    np.testing.assert_array_equal(train(tf.ones([4, 4])), 3 * y)  # sums of integers
    np.testing.assert_array_equal(step.variables["v"], 3 * y.sum(0))


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "condition not bool": (lambda x: mtf.while_loop(lambda x: mtf.reduce_sum(x), lambda x: [x], x), DtypeError,
                           r"cond_fn must return a bool scalar, and returned reduce_sum \[\] float32"),
    "condition not scalar": (lambda x: mtf.while_loop(lambda x: mtf.less(x, 1.0), lambda x: [x], x), DtypeError,
                             "must return a bool scalar"),
    "condition assigns": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(mtf.check_finite(x)), 1.0),
                                                   lambda x: [x], x), GraphError, "belongs into body_fn"),
    "shape": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), lambda x: [mtf.reduce_sum(x)], x),
              ShapeError, r"changes the shape of a carried value: \[batch:4 d:4\] becomes \[\]"),
    "more values": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), lambda x: [x, x], x),
                    ShapeError, "set has_accumulators"),
    "no values": (lambda x: mtf.while_loop(lambda: x, lambda: [], []), GraphError, "needs at least one value"),
    "negative": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), lambda x: [x], x,
                                          maximum_iterations=-1), ShapeError, "must not be negative, and is -1"),
    "iterations in words": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), lambda x: [x], x,
                                                     maximum_iterations="3"),  # type: ignore[arg-type]
                            ShapeError, "maximum_iterations must be a whole number known now, not '3'"),
    "values in words": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), lambda x: [x], x,
                                                 num_loop_vars="1"),  # type: ignore[arg-type]
                        ShapeError, "num_loop_vars must be a whole number known now, not '1'"),
    "no function": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), [x], x),  # type: ignore[arg-type]
                    GraphError, r"body_fn must be a function of mtf.Tensors, and is \[x \[batch:4 d:4\]"),
    "no tensors": (lambda x: mtf.while_loop(lambda x: mtf.less(x, 1.0), lambda x: [x], None),  # type: ignore[arg-type]
                   GraphError, "the operand must be an mtf.Tensor, not NoneType"),
    "a sum of bool": (lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_sum(x), 1.0), lambda x: [x, x > 1.0], x,
                                               has_accumulators=True), DtypeError,
                      r"greater \[batch:4 d:4\] bool would be summed over the iterations"),
    "too many values": (
        lambda x: mtf.while_loop(lambda x: mtf.less(mtf.reduce_max(x), 1.0), lambda x: [x], x, num_loop_vars=2),
        GraphError, "num_loop_vars is a number of the 1 value, at least 1, not 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case: str) -> None:
    call, error, message = BAD[case]
    mesh = mtf.Mesh(mtf.Graph())
    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        with pytest.raises(error, match=message) as raised:
            call(x)
    assert "test_while_loop.py:" in str(raised.value)


def test_the_gradient_of_an_unbounded_loop_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with mesh.graph:
        x = mtf.placeholder(mesh, [BATCH, D], name="x")
        (y,) = mtf.while_loop(lambda y: mtf.less(mtf.reduce_sum(y), 1.0), lambda y: [y * 2.0], x)
        with pytest.raises(GraphError, match=r"made at .*test_while_loop.py:\d+.*give mtf.while_loop maximum_iter"):
            mtf.gradients([mtf.reduce_sum(y)], [x])


def test_what_checks_itself_is_refused_in_the_condition() -> None:
    rows, columns = mtf.Dimension("rows", 2), mtf.Dimension("columns", 2)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        def small(y: mtf.Tensor) -> mtf.Tensor:
            return mtf.less(mtf.reduce_max(mtf.cholesky(y, rows, columns)), 9.0)

        return mtf.while_loop(small, lambda y: [y * 2.0], [x])

    with pytest.raises(GraphError, match=r"cholesky is checked in the condition of while_loop, where no step can be"):
        mtf.function(program, mtf.SpmdMeshImpl("all:1", ""), inputs={"x": mtf.TensorSpec([rows, columns])}).report()
