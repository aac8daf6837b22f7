"""A cast is no reason to sum over cores in each iteration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.planning.plan import Loop
from meshtf.testing import interpret

BATCH, HIDDEN, LAYERS = mtf.Dimension("batch", 8), mtf.Dimension("hidden", 2), mtf.Dimension("layers", 3)
X = np.random.default_rng(0).integers(-2, 3, [8, 2]).astype(tf.bfloat16.as_numpy_dtype)
NARROW = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)

Layer = Callable[[mtf.Tensor], mtf.Tensor]


def read_narrow(x: mtf.Tensor) -> mtf.Tensor:
    """Like a norm: the weight is read in bfloat16, and multiplied in float32."""
    scale = mtf.get_variable(x.mesh, "scale", [HIDDEN], NARROW, initializer=mtf.ones)
    return (x.astype(tf.float32) * scale.astype(tf.float32)).astype(tf.bfloat16)


def made_narrow(x: mtf.Tensor) -> mtf.Tensor:
    """Like a dense layer whose weight is read in float32: it is multiplied in bfloat16."""
    scale = mtf.get_variable(x.mesh, "scale", [HIDDEN], initializer=mtf.ones)
    return x * scale.astype(tf.bfloat16)


def loss_of(layer: Layer, x: mtf.Tensor, recompute: str | None = None, is_block: bool = False) -> mtf.Tensor:
    def body(carried: list[mtf.Tensor], _: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        return [mtf.recompute_grad(layer, carried) if is_block else layer(carried[0])], []

    (y,), _ = mtf.layer_stack(body, [x], LAYERS, recompute=recompute)
    return mtf.reduce_sum(y.astype(tf.float32))


def gradient(layer: Layer, x: mtf.Tensor, form: str) -> mtf.Tensor:
    if form == "micro-batches":
        grads, _ = mtf.serialize_training_step({"x": x}, lambda f: {"loss": loss_of(layer, f["x"])}, BATCH, 4)
        return grads[0]
    recompute = "nothing" if form == "recomputed" else None
    loss = loss_of(layer, x, recompute, is_block=form == "recomputed in a block")
    (grad,) = mtf.gradients([loss], [v.value for v in x.graph.trainable_variables])
    assert grad is not None
    return grad


@pytest.mark.parametrize("layer", [read_narrow, made_narrow])
@pytest.mark.parametrize("form", ["plain", "recomputed", "recomputed in a block", "micro-batches"])
def test_the_gradient_of_a_stack_is_summed_over_cores_once(layer: Layer, form: str) -> None:
    """All values are small whole numbers, so the gradient of a scale of ones is exact: the sum of x in each layer."""

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [gradient(layer, x, form)]

    inputs = {"x": mtf.TensorSpec([BATCH, HIDDEN], tf.bfloat16)}
    report = mtf.function(program, mtf.PlanMeshImpl("data:2", "batch:data"), inputs=inputs).report()
    assert [(c.kind, c.times) for c in report.collectives] == [("all_reduce", 1)]
    for mesh_shape in ("data:1", "data:2"):
        (grad,) = interpret(program, {"x": ("batch:8 hidden:2", X)}, mesh_shape, "batch:data").results
        np.testing.assert_array_equal(np.asarray(grad, np.float32), np.tile(X.astype(np.float32).sum(0), [3, 1]))


def test_gradients_of_activations_are_stacked_in_their_own_dtype() -> None:
    """A stack in float32 would take twice the memory of the activations, for no sum over cores."""
    time = mtf.Dimension("time", 64)

    def program(xs: mtf.Tensor) -> list[mtf.Tensor | None]:
        def body(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
            return [mtf.tanh(carried[0] + parts[0].astype(tf.float32))], []

        (y,), _ = mtf.scan(body, [mtf.zeros(xs.mesh, [BATCH])], [xs], time)
        return mtf.gradients([mtf.reduce_sum(y)], [xs])

    inputs = {"xs": mtf.TensorSpec([time, BATCH], tf.bfloat16)}
    plan = mtf.testing.plan(program, inputs, "data:2", "batch:data")
    loops = [i for i in plan.instructions if isinstance(i, Loop)]
    assert [s.whole.dtype for s in loops[-1].stacked] == [tf.bfloat16]
