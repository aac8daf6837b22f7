"""slicewise and cwise: values, gradients to third order, under every layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import testing
from meshtf.ops.slicewise.slicewise import SlicewiseOperation
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.lowering.emitted import times_traced

_RNG = np.random.default_rng(0)
X = _RNG.normal(size=(4, 8, 6)).astype(np.float32)
W = _RNG.normal(size=8).astype(np.float32)
N = _RNG.integers(1, 4, size=4).astype(np.int32)
INPUTS: dict[str, Any] = {"x": ("batch:4 hidden:8 d:6", X), "w": ("hidden:8", W), "n": ("batch:4", N)}
MESHES = [
    pytest.param("all:1", "", marks=pytest.mark.long),
    ("rows:2;cols:4", "batch:rows;hidden:cols"),
    pytest.param("rows:2;cols:2", "hidden:rows+cols", marks=pytest.mark.long),
    pytest.param("rows:2;cols:2", "hidden:cols+rows", marks=pytest.mark.long),
    pytest.param("rows:2;cols:2", "d:rows;hidden:cols", marks=pytest.mark.long),
    pytest.param("rows:2;cols:2", "batch:rows", marks=pytest.mark.long),
    pytest.param("rows:4;cols:8", "batch:rows;hidden:cols", marks=pytest.mark.long),
]
TERMS = (4 * 8 * 6, 4 * 6 * FUNCTION_TERMS)
"""Each of four orders goes through the functions of the one before, and through sums over up to all of x."""


def two_outputs(x: tf.Tensor, w: tf.Tensor, n: tf.Tensor) -> list[tf.Tensor]:
    weighted = tf.nn.softmax(x * w[:, None], -1) * tf.cast(n, tf.float32)[:, None, None]
    return [weighted + tf.sin(x * x), tf.reduce_sum(x, -1) ** 3]


def derivatives(orders: int) -> Callable[..., list[mtf.Tensor]]:
    """A program of the outputs and their gradients of the first orders."""

    def program(x: mtf.Tensor, w: mtf.Tensor, n: mtf.Tensor) -> list[mtf.Tensor]:
        outputs = mtf.slicewise(
            two_outputs, [x, w, n], output_shape=[x.shape, "batch:4 hidden:8"], splittable_dims=["batch", "hidden"]
        )
        results = [*outputs]
        loss = mtf.reduce_sum(mtf.square(outputs[0])) + mtf.reduce_sum(outputs[1])
        for _ in range(orders):
            dx, dw, dn = mtf.gradients([loss], [x, w, n])
            assert dn is None
            assert dx is not None
            assert dw is not None
            results += [dx, dw]
            loss = mtf.reduce_sum(mtf.square(dx)) + mtf.reduce_sum(mtf.square(dw))
        return results

    return program


def expected_derivatives() -> list[np.ndarray]:
    x, w = tf.constant(X), tf.constant(W)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch([x, w])
        outputs = two_outputs(x, w, tf.constant(N))
        results = [*outputs]
        loss = tf.reduce_sum(outputs[0] ** 2) + tf.reduce_sum(outputs[1])
        for _ in range(3):
            dx, dw = tape.gradient(loss, [x, w])
            results += [dx, dw]
            loss = tf.reduce_sum(dx**2) + tf.reduce_sum(dw**2)
    return [r.numpy() for r in results]


@pytest.mark.parametrize(("mesh", "layout"), MESHES)
def test_derivatives_to_third_order(mesh: str, layout: str) -> None:
    found = testing.interpret(derivatives(3), INPUTS, mesh, layout).results
    for actual, expected in zip(found, expected_derivatives(), strict=True):
        assert_close(actual, expected, terms=TERMS)


def test_derivatives_on_devices_in_one_trace() -> None:
    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols")
    specs = {n: mtf.TensorSpec(s, tf.as_dtype(a.dtype)) for n, (s, a) in INPUTS.items()}
    step = mtf.function(derivatives(2), mesh_impl, inputs=specs)
    for actual, expected in zip(step(X, W, N), expected_derivatives()[:-2], strict=True):
        assert_close(actual, expected, terms=TERMS)
    assert times_traced(step._execution.program) == {1}


def reduced_gradients(mesh: str, layout: str) -> list[Any]:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.slicewise(lambda x, w: x * w[:, None], [x, w], splittable_dims=["batch", "hidden"])
        return mtf.gradients([mtf.reduce_sum(mtf.square(y))], [x, w])

    return list(testing.interpret(body, {"x": INPUTS["x"], "w": INPUTS["w"]}, mesh, layout).plan.collectives)


def test_only_the_gradient_of_an_operand_without_the_split_dimension_is_reduced() -> None:
    assert reduced_gradients("rows:4", "hidden:rows") == []
    (reduction,) = reduced_gradients("rows:4", "batch:rows")
    assert (reduction.step.kind, reduction.step.axes) == ("all_reduce", ("rows",))
    assert str(reduction.input.shape) == "hidden:8"


def test_two_gradients_of_one_operand_are_added_before_they_are_reduced() -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor | None:
        y = mtf.slicewise(lambda x, w: x * w[:, None], [x, w], splittable_dims=["batch"])
        z = mtf.slicewise(lambda x, w: x + tf.sin(w)[:, None], [x, w], splittable_dims=["batch"])
        return mtf.gradients([y, z], [w])[0]

    done = testing.interpret(body, {"x": INPUTS["x"], "w": INPUTS["w"]}, "rows:4", "batch:rows")
    assert [c.step.kind for c in done.plan.collectives] == ["all_reduce"]
    assert_close(done.results, X.sum((0, 2)) + 24 * np.cos(W), terms=(24, FUNCTION_TERMS))


def test_an_output_without_a_gradient_counts_as_zeros() -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> list[mtf.Tensor | None]:
        _, y, count = mtf.slicewise(
            lambda x, w: [x * w, tf.square(x), tf.cast(tf.round(x), tf.int32)],
            [x, w],
            output_shape=["batch:4", "batch:4", "batch:4"],
            output_dtype=[tf.float32, tf.float32, tf.int32],
            splittable_dims=["batch"],
        )
        assert count.dtype == tf.int32
        return mtf.gradients([y], [x, w])

    x = np.arange(4, dtype=np.float32)
    inputs: dict[str, Any] = {"x": ("batch:4", x), "w": ("", np.float32(3))}
    for layout in ("", "batch:rows"):
        dx, dw = testing.interpret(body, inputs, "rows:2", layout).results
        np.testing.assert_array_equal(dx, 2 * x)
        np.testing.assert_array_equal(dw, 0)


def test_one_tensor_as_two_operands_and_an_operand_that_is_not_used() -> None:
    def body(x: mtf.Tensor, unused: mtf.Tensor) -> list[mtf.Tensor | None]:
        y = mtf.slicewise(lambda a, b, c: a * a * b, [x, x, unused], splittable_dims=["batch"])
        return mtf.gradients([y], [x, unused])

    x = np.arange(4, dtype=np.float32)
    inputs: dict[str, Any] = {"x": ("batch:4", x), "unused": ("batch:4", x)}
    testing.assert_layout_invariant(body, inputs, ["batch:rows+cols"], with_gradients=False)
    dx, dunused = testing.interpret(body, inputs, "rows:2", "batch:rows").results
    np.testing.assert_array_equal(dx, 3 * x * x)
    np.testing.assert_array_equal(dunused, np.zeros(4))


def test_gathering_a_dimension_that_is_not_splittable() -> None:
    def body(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.slicewise(lambda x: tf.sort(x, axis=1), [mtf.negative(x)], splittable_dims=["batch"])

    done = testing.interpret(body, {"x": INPUTS["x"]}, "rows:2;cols:2", "batch:rows;hidden:cols")
    np.testing.assert_array_equal(done.results, np.sort(-X, axis=1))
    assert [(c.step.kind, c.step.axes) for c in done.plan.collectives] == [("all_gather", ("cols",))]


def test_a_gather_gives_a_dense_gradient_and_sizes_may_change() -> None:
    def body(x: mtf.Tensor, n: mtf.Tensor) -> mtf.Tensor:
        pooled = mtf.slicewise(
            lambda x: tf.reduce_max(tf.reshape(x, [x.shape[0], 4, 2, -1]), 2),
            [x],
            output_shape="batch:4 hidden:4 d:6",
            splittable_dims=["batch", "d"],
        )
        return mtf.slicewise(lambda x, n: tf.gather(x, n), [pooled, n], splittable_dims=["d", "hidden"])

    inputs = {"x": INPUTS["x"], "n": INPUTS["n"]}
    testing.assert_layout_invariant(body, inputs, ["hidden:rows;d:cols"])


def test_overridden_operands() -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        y = mtf.slicewise(
            lambda x, w: x * w[:, None], [mtf.with_layout(x, "hidden:rows"), w], splittable_dims=["batch", "hidden"]
        )
        return mtf.slicewise(tf.exp, [mtf.replicate(y)], splittable_dims=["batch"]) + y

    inputs = {"x": INPUTS["x"], "w": INPUTS["w"]}

    def alone(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.with_layout(body(x, w), None)

    with pytest.raises(mtf.errors.LayoutError, match="both layouts were overridden"):
        testing.interpret(alone, inputs, "rows:2;cols:2", "hidden:cols")

    def agreed(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        x = mtf.with_layout(x, "hidden:rows")
        return mtf.slicewise(lambda x, w: x * w[:, None], [x, w], splittable_dims=["batch", "hidden"])

    testing.assert_layout_invariant(agreed, inputs, ["hidden:rows;batch:cols"])


def test_elementwise_with_other_dtype() -> None:
    def body(x: mtf.Tensor, w: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        return mtf.cwise(lambda a: a > 0, x, output_dtype=tf.bool), mtf.cwise(
            lambda a, b: tf.nn.relu(a) * tf.sigmoid(b), [w, w * 2.0]
        )

    testing.assert_layout_invariant(body, {"x": INPUTS["x"], "w": INPUTS["w"]}, ["batch:rows;hidden:cols"])
    positive, _ = testing.interpret(body, {"x": INPUTS["x"], "w": INPUTS["w"]}, "rows:2", "d:rows").results
    np.testing.assert_array_equal(positive, X > 0)


def test_a_gradient_of_the_users() -> None:
    def straight_through(operation: SlicewiseOperation, dy: mtf.Tensor) -> list[mtf.Tensor]:
        return [dy * operation.inputs[0]]

    def body(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        return [
            *mtf.gradients([mtf.cwise(tf.round, x, grad_function=straight_through)], [x]),
            *mtf.gradients([mtf.cwise(tf.exp, x, grad_function=0) + x], [x]),
            *mtf.gradients([mtf.cwise(tf.exp, x, grad_function=0)], [x]),
        ]

    through, without, unconnected = testing.interpret(body, {"x": INPUTS["x"]}, "rows:2", "batch:rows").results
    np.testing.assert_array_equal(through, X)
    np.testing.assert_array_equal(without, np.ones_like(X))
    assert unconnected is None


def test_functions_decorated_with_tf_function_or_running_python() -> None:
    @tf.function
    def controlled(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            if tf.reduce_sum(x) > 0:  # autograph converts a tf.function
                x = x - 1.0
        return x

    def doubled(x: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda a: a * 2, [x], tf.float32)  # of unknown shape

    def body(x: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
        return mtf.slicewise(controlled, [x]), mtf.cwise(doubled, x)

    testing.assert_layout_invariant(body, {"x": INPUTS["x"]}, ["batch:rows;d:cols"])
