"""Micro-batches: the whole batch's gradients, outputs and random bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import FUNCTION_TERMS, assert_close, assert_layout_invariant, interpret, terms_of
from tests.built_program import BuiltProgram
from tests.house.layouts_of_run import layouts_of_run

BATCH, D, HIDDEN = mtf.Dimension("batch", 16), mtf.Dimension("d", 4), mtf.Dimension("hidden", 8)
RNG = np.random.default_rng(5)
INPUTS: dict[str, Any] = {
    "x": ("batch:16 d:4", RNG.normal(size=(16, 4))),
    "scale": ("d:4", RNG.normal(size=4)),
}
LAYOUTS = ["batch:rows;hidden:cols", "batch:rows+cols", "d:cols;batch:rows", "hidden:rows+cols"]


def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
    x = features["x"]
    w = mtf.get_variable(x.mesh, "w", [D, HIDDEN], x.dtype, initializer=mtf.RandomNormal())
    v = mtf.get_variable(x.mesh, "v", [HIDDEN], x.dtype, initializer=mtf.RandomNormal(stddev=1.0))
    h = mtf.dropout(mtf.tanh(mtf.einsum([x * features["scale"], w], reduced_dims=[D])), True, rate=0.5)
    noise = mtf.random_uniform(x.mesh, [HIDDEN, x.shape[0]], x.dtype)
    y = mtf.einsum([h, v], reduced_dims=[HIDDEN])
    return {"loss": mtf.reduce_sum(mtf.square(y)) * 0.01, "y": y, "h": h, "noise": noise, "sum": mtf.reduce_sum(h)}


def program(splits: int) -> Callable[..., Any]:
    def step(mesh: mtf.Mesh, x: mtf.Tensor, scale: mtf.Tensor) -> Any:
        features = {"x": x, "scale": scale}
        if splits == 0:
            outputs = model(features)
            return mtf.gradients([outputs["loss"]], [v.value for v in mesh.graph.trainable_variables]), outputs
        return mtf.serialize_training_step(features, model, BATCH, splits)

    return step


def test_equal_to_the_whole_batch(request: pytest.FixtureRequest) -> None:
    whole = interpret(program(0), INPUTS, "one:1")
    grads, outputs = whole.results
    terms = terms_of(whole.plan, INPUTS["x"][1].dtype)
    for splits in (1, 2, 4):
        built = BuiltProgram(program(splits), INPUTS)
        for layout in layouts_of_run(["", *(LAYOUTS if splits == 2 else LAYOUTS[:2])], request.config):
            found_grads, found = built.interpret("rows:2;cols:2", layout).results
            for name, value in outputs.items():
                assert_close(found[name], value, terms=terms, what=f"{name}, {splits} splits")
            np.testing.assert_array_equal(found["h"] == 0, outputs["h"] == 0)
            np.testing.assert_array_equal(found["noise"], outputs["noise"])
            for grad, wanted in zip(found_grads, grads, strict=True):
                assert_close(grad, wanted, terms=terms, what=f"gradient, {splits} splits")


def test_gradients_are_reduced_once(count_collectives: Any) -> None:
    """A training step by micro-batches sends what it would without."""

    def step(splits: int) -> Callable[..., Any]:
        def fn(mesh: mtf.Mesh, x: mtf.Tensor, scale: mtf.Tensor) -> Any:
            grads, outputs = program(splits)(mesh, x, scale)
            return [mtf.tanh(g) for g in grads], mtf.tanh(outputs["loss"])

        return fn

    counts = [count_collectives(interpret(step(n), INPUTS, "rows:2;cols:2", "batch:rows+cols").plan) for n in (0, 1, 4)]
    assert counts[0] == counts[1] == counts[2] == {"all_reduce": 3}


def test_on_virtual_cpus() -> None:
    def step(x: mtf.Tensor, scale: mtf.Tensor, mesh: mtf.Mesh) -> Any:
        return program(2)(mesh, x, scale)

    inputs = {name: (shape, array.astype(np.float32)) for name, (shape, array) in INPUTS.items()}
    assert_layout_invariant(step, inputs, LAYOUTS[:1], with_gradients=False)


def test_with_a_scan_and_an_optimizer_inside_and_outside() -> None:
    """Layers by a scan in each micro-batch; the update follows, once."""
    layers = mtf.Dimension("layers", 3)

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        x = features["x"]
        w = mtf.get_variable(x.mesh, "w", [layers, D], x.dtype, initializer=np.ones((3, 4)))
        body = lambda c, p: ([mtf.dropout(mtf.sin(c[0] * p[0]), True, rate=0.2)], [])  # noqa: E731
        (y,), _ = mtf.scan(body, x, w, layers)
        return {"loss": mtf.reduce_sum(mtf.square(y))}

    def step(mesh: mtf.Mesh, x: mtf.Tensor, scale: mtf.Tensor) -> Any:
        if splits:
            grads, outputs = mtf.serialize_training_step({"x": x}, model, ("batch", 16), splits)
        else:
            outputs = model({"x": x})
            grads = mtf.gradients([outputs["loss"]], [v.value for v in mesh.graph.trainable_variables])
        mtf.optimize.SgdOptimizer(0.1).apply_grads(grads, mesh.graph.trainable_variables)
        return outputs["loss"]

    splits = 0
    expected = interpret(step, INPUTS, "one:1")
    for splits in (2, 4):  # noqa: B007 - the program reads it
        done = interpret(step, INPUTS, "rows:2;cols:2", "batch:rows;d:cols")
        assert_close(done.results, expected.results, terms=(3 * 2 * FUNCTION_TERMS, 16 * 4))
        assert_close(done.variables["w"], expected.variables["w"], terms=(3 * 2 * FUNCTION_TERMS, 16 * 4))


@pytest.mark.parametrize(("mesh_shape", "layout"), [("one:1", ""), ("all:4", "batch:all")])
def test_many_microbatches_in_bfloat16_are_summed_in_float32(mesh_shape: str, layout: str) -> None:
    """64 of them: sums in bfloat16, which would go on to lose each one's last digits, are off by a percent."""
    batch, dtype = mtf.Dimension("batch", 256), mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
    x = RNG.uniform(1, 2, [256, 4]).astype(tf.bfloat16.as_numpy_dtype)

    def model(features: dict[str, mtf.Tensor]) -> dict[str, mtf.Tensor]:
        x = features["x"]
        w = mtf.get_variable(x.mesh, "w", [D], dtype, initializer=mtf.ones)
        wide = mtf.reduce_sum(mtf.cast(mtf.einsum([x, w], reduced_dims=[D]), tf.float32))
        return {"loss": wide, "narrow": mtf.cast(wide, tf.bfloat16)}

    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        (grad,), outputs = mtf.serialize_training_step({"x": x}, model, batch, 64)
        assert (grad.dtype, outputs["loss"].dtype, outputs["narrow"].dtype) == (tf.float32, tf.float32, tf.bfloat16)
        return [grad]

    done = interpret(step, {"x": ("batch:256 d:4", x)}, mesh_shape, layout)
    terms = x.reshape(64, 4, 4).astype(np.float64).sum(1) if layout == "" else x.astype(np.float64)
    exact = x.astype(np.float64).sum(0)
    narrow = np.zeros(4, x.dtype)
    for term in terms.astype(x.dtype):
        narrow = (narrow + term).astype(x.dtype)
    error = np.abs(done.results[0] - exact) / exact
    assert np.max(error) < 2**-8 / 8
    assert np.max(np.abs(narrow.astype(np.float64) - exact) / exact) > 8 * np.max(error)


def test_loops_sum_bfloat16_in_float32() -> None:
    """A loop's own accumulators, and the gradient of what all of its iterations use, are rounded once."""
    ones = np.ones([4], tf.bfloat16.as_numpy_dtype)

    def step(x: mtf.Tensor) -> list[mtf.Tensor]:
        turn = mtf.zeros(x.mesh, [], tf.int32)
        (_, total) = mtf.while_loop(
            lambda t: mtf.less(t, 1000), lambda t: [t + 1, x], [turn], has_accumulators=True, maximum_iterations=1000
        )
        (grad,) = mtf.gradients([total], [x])
        assert grad is not None
        return [total, grad]

    total, grad = interpret(step, {"x": ("d:4", ones)}, "one:1").results
    np.testing.assert_array_equal(total, ones * 1000)
    np.testing.assert_array_equal(grad, ones * 1000)


BAD: dict[str, tuple[Callable[..., Any], type[Exception], str]] = {
    "does not divide": (lambda x: mtf.serialize_training_step({"x": x}, model, BATCH, 3), ShapeError,
                        r'"batch:16" does not divide into 3 micro-batches; these fit: \[1, 2, 4, 8, 16\]'),
    "none": (lambda x: mtf.serialize_training_step({"x": x}, model, BATCH, 0), ShapeError, "into 0 micro-batches"),
    "half": (lambda x: mtf.serialize_training_step({"x": x}, model, BATCH, 0.5),  # type: ignore[arg-type]
             ShapeError, r"num_splits must be a whole number known now, not 0\.5"),
    "no name": (lambda x: mtf.serialize_training_step([x], model, BATCH, 2),  # type: ignore[arg-type]
                GraphError, r'features are tensors by name, such as {"x": x}, and not \[x'),
    "no function": (lambda x: mtf.serialize_training_step({"x": x}, x, BATCH, 2),  # type: ignore[arg-type]
                    GraphError, r"model_fn must be a function of the features, and is x"),
    "no batch": (lambda x: mtf.serialize_training_step({"x": mtf.reduce_sum(x)}, model, BATCH, 2), ShapeError,
                 'no feature has dimension "batch:16"'),
    "no loss": (lambda x: mtf.serialize_training_step({"x": x}, lambda f: {"y": f["x"]}, BATCH, 2), GraphError,
                'must return a scalar "loss", and returned None'),
    "nothing": (lambda x: mtf.serialize_training_step({"x": x}, lambda f: None, BATCH, 2), GraphError,
                'model_fn must return its outputs by name, such as {"loss": loss}, and returned None'),
    "no tensor": (lambda x: mtf.serialize_training_step({"x": x}, lambda f: {"loss": mtf.reduce_sum(f["x"]), "n": 3},
                                                        BATCH, 2), GraphError, 'output "n" of model_fn must be an mtf'),
    "whole batch": (lambda x: mtf.serialize_training_step({"x": x}, lambda f: {"loss": mtf.reduce_sum(f["x"]), "x": x},
                                                          BATCH, 2), ShapeError,
                    r'output "x" \[batch:16 d:4\] of model_fn does not have "batch:8" of a micro-batch'),
    "no dependence": (
        lambda x: (mtf.get_variable(x.mesh, "w", [D]),
                   mtf.serialize_training_step({"x": x}, lambda f: {"loss": mtf.reduce_sum(f["x"])}, BATCH, 2)),
        GraphError, "the loss does not depend on the trainable variables w",
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
    assert "test_serialize_training_step.py:" in str(raised.value)
