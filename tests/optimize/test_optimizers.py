from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.optimize import AdamWOptimizer, Optimizer, SgdOptimizer

BATCH, INNER, OUTER = mtf.Dimension("batch", 8), mtf.Dimension("inner", 4), mtf.Dimension("outer", 4)
NUM_STEPS = 5


def batches() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(size=(8, 4)).astype(np.float32) for _ in range(NUM_STEPS)]


def trained(optimizer: Optimizer, layout: str) -> dict[str, np.ndarray]:
    """The variables after `NUM_STEPS` steps on mean((x w + b)^2)."""

    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [INNER, OUTER], initializer=mtf.ones)
        b = mtf.get_variable(x.mesh, "b", [OUTER], initializer=mtf.ones)
        loss = mtf.reduce_mean(mtf.square(mtf.einsum([x, w], output_shape=[BATCH, OUTER]) + b))
        optimizer.minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:4", layout)
    program = mtf.function(step, mesh_impl, inputs={"x": mtf.TensorSpec([BATCH, INNER], tf.float32)})
    for x in batches():
        program(x=x)
    return {name: np.asarray(program.variables[name]) for name in program.variables}


def gradients(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    dy = 2 * (x @ w + b) / (x.shape[0] * w.shape[1])
    return {"w": x.T @ dy, "b": dy.sum(0)}


LAYOUTS = ["", "batch:rows", "batch:rows;outer:cols", "inner:rows;outer:cols", "batch:rows+cols"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sgd_follows_its_formula(layout: str) -> None:
    values = {"w": np.ones((4, 4)), "b": np.ones(4)}
    for x in batches():
        grads = gradients(x, **values)
        values = {name: value - 0.1 * grads[name] for name, value in values.items()}
    actual = trained(SgdOptimizer(0.1), layout)
    np.testing.assert_allclose(actual["w"], values["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual["b"], values["b"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_adamw_follows_the_paper(layout: str) -> None:
    values = {"w": np.ones((4, 4)), "b": np.ones(4)}
    means = {name: np.zeros_like(value) for name, value in values.items()}
    squares = {name: np.zeros_like(value) for name, value in values.items()}
    decay = {"w": 0.3, "b": 0.0}
    for t, x in enumerate(batches(), start=1):
        for name, grad in gradients(x, **values).items():
            means[name] = 0.8 * means[name] + 0.2 * grad
            squares[name] = 0.9 * squares[name] + 0.1 * grad**2
            change = means[name] / (1 - 0.8**t) / (np.sqrt(squares[name] / (1 - 0.9**t)) + 1e-6)
            values[name] = values[name] - 0.05 * (change + decay[name] * values[name])
    optimizer = AdamWOptimizer(0.05, 0.8, 0.9, 1e-6, weight_decay=0.3, exclude_from_weight_decay=["^b$"])
    actual = trained(optimizer, layout)
    np.testing.assert_allclose(actual["w"], values["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual["b"], values["b"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual["w/adam_m"], means["w"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(actual["b/adam_v"], squares["b"], rtol=1e-5, atol=1e-6)
    assert actual["adam/step"] == NUM_STEPS


def test_first_adam_step_is_the_learning_rate() -> None:
    """Bias correction is exact at the start, where 1 - beta^t cancels in float32."""
    actual = one_step(AdamWOptimizer(1e-3, beta_2=1 - 1e-6, weight_decay=0.0))
    np.testing.assert_allclose(1 - actual, np.full(4, 1e-3), rtol=2e-4)


def one_step(optimizer: Optimizer) -> np.ndarray:
    def step(x: mtf.Tensor) -> mtf.Tensor:
        w = mtf.get_variable(x.mesh, "w", [INNER], initializer=mtf.ones)
        optimizer.minimize(mtf.reduce_sum(x * w))
        return mtf.reduce_sum(w)

    inputs = {"x": mtf.TensorSpec([INNER], tf.float32)}
    program = mtf.function(step, mtf.SpmdMeshImpl("rows:2", "inner:rows"), inputs=inputs)
    program(x=np.arange(1, 5, dtype=np.float32))
    return np.asarray(program.variables["w"])


def graph_with_variable(name: str = "w") -> tuple[mtf.Graph, mtf.Tensor]:
    graph = mtf.Graph()
    with graph:
        return graph, mtf.get_variable(mtf.Mesh(graph), name, [INNER])


def test_minimize_needs_a_scalar() -> None:
    graph, w = graph_with_variable()
    with graph, pytest.raises(GraphError, match=r"minimize needs a scalar loss, not .*w.*inner:4"):
        SgdOptimizer(0.1).minimize(w)


def test_minimize_names_what_the_loss_does_not_depend_on() -> None:
    graph, w = graph_with_variable()
    with graph:
        mtf.get_variable(w.mesh, "forgotten", [INNER])
        loss = mtf.reduce_sum(w)
        with pytest.raises(GraphError, match=r"does not depend on forgotten; .*variables="):
            SgdOptimizer(0.1).minimize(loss)
        assert len(SgdOptimizer(0.1).minimize(loss, variables=[graph.variables["w"]])) == 1


def test_minimize_without_variables() -> None:
    graph = mtf.Graph()
    with graph, pytest.raises(GraphError, match=r"no trainable variable"):
        SgdOptimizer(0.1).minimize(mtf.zeros(mtf.Mesh(graph), []))


def test_adamw_refuses_a_decay_of_one() -> None:
    with pytest.raises(ValueError, match=r"beta_2 must be between 0 and 1, and is 1"):
        AdamWOptimizer(1e-3, beta_2=1)
