"""Every optimizer over 20 steps of given gradients, against Keras where it has the same, else NumPy from the paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf import optimize
from meshtf.testing import FUNCTION_TERMS, assert_close
from tests.house.keras_module import keras
from tests.house.sharpest import sharpest
from tests.optimize.interpreted_training import InterpretedTraining

NUM_STEPS = 20
TERMS = (4 * NUM_STEPS, 8 + 12 + 4 * FUNCTION_TERMS)
"""Each step rounds a weight once and its moments three times. The roundings of an update itself, of norms and means
over rows and columns and of four functions, are relative to the way it goes, and so to the whole way. The gradients are
given: no step amplifies what it is given."""
ROWS, COLUMNS = mtf.Dimension("rows", 8), mtf.Dimension("columns", 12)
SHAPES = {"kernel": mtf.Shape([ROWS, COLUMNS]), "bias": mtf.Shape([COLUMNS])}

Values = dict[str, np.ndarray]


def initial() -> Values:
    generator = np.random.default_rng(1)
    return {name: generator.normal(size=shape.to_integer_list).astype(np.float32) for name, shape in SHAPES.items()}


def gradients() -> Iterator[Values]:
    """Of very different sizes, so that what divides by them is seen."""
    generator = np.random.default_rng(2)
    for scale in np.exp(generator.normal(size=NUM_STEPS)):
        sizes = {"kernel": np.exp(np.linspace(-1, 1, 8 * 12)).reshape(8, 12), "bias": np.ones(12)}
        yield {
            name: (scale * size * generator.normal(size=size.shape)).astype(np.float32) for name, size in sizes.items()
        }


def trained(optimizer: optimize.Optimizer) -> InterpretedTraining:
    values = initial()

    def step(mesh: mtf.Mesh, kernel: mtf.Tensor, bias: mtf.Tensor) -> mtf.Tensor:
        grads = {"kernel": kernel, "bias": bias}
        for name, shape in SHAPES.items():
            mtf.get_variable(mesh, name, shape, initializer=values[name])
        optimizer.apply_grads(list(grads.values()), mesh.graph.trainable_variables)
        return mtf.reduce_sum(bias)

    specs = {name: mtf.TensorSpec(shape) for name, shape in SHAPES.items()}
    training = InterpretedTraining(step, specs, "all:2", "columns:all")
    for grads in gradients():
        training.step(**grads)
    return training


def assert_alike(training: InterpretedTraining, expected: Values) -> None:
    for name, value in expected.items():
        assert_close(training[name], value, terms=TERMS, what=name)


def trained_by_keras(optimizer: Any, exclude: tuple[str, ...] = ()) -> Values:
    variables = {name: keras().Variable(value, name=name) for name, value in initial().items()}
    if exclude:
        optimizer.exclude_from_weight_decay(var_names=list(exclude))
    for grads in gradients():
        optimizer.apply([tf.constant(grads[name]) for name in variables], list(variables.values()))
    return {name: variable.numpy() for name, variable in variables.items()}


WRITTEN_OUT = {"adafactor", "lamb"}
"""Which a formula below has too."""

KERAS: dict[str, tuple[optimize.Optimizer, Callable[[], Any]]] = {
    "sgd": (optimize.SgdOptimizer(0.01), lambda: keras().optimizers.SGD(0.01)),
    "momentum": (optimize.MomentumOptimizer(0.01, 0.9), lambda: keras().optimizers.SGD(0.01, 0.9)),
    "nesterov": (
        optimize.MomentumOptimizer(0.01, 0.9, nesterov=True),
        lambda: keras().optimizers.SGD(0.01, 0.9, nesterov=True),
    ),
    "adam": (optimize.AdamOptimizer(0.01, 0.8, 0.95), lambda: keras().optimizers.Adam(0.01, 0.8, 0.95, epsilon=1e-8)),
    "adafactor": (optimize.AdafactorOptimizer(), lambda: keras().optimizers.Adafactor(0.01)),
    "lamb": (optimize.LambOptimizer(0.01), lambda: keras().optimizers.Lamb(0.01, epsilon=1e-6)),
    "clipped by value": (
        optimize.ClippedOptimizer(optimize.SgdOptimizer(0.01), [optimize.ClipByValue(0.5)]),
        lambda: keras().optimizers.SGD(0.01, clipvalue=0.5),
    ),
    "clipped by global norm": (
        optimize.ClippedOptimizer(optimize.MomentumOptimizer(0.01, 0.9), [optimize.ClipByGlobalNorm(5.0)]),
        lambda: keras().optimizers.SGD(0.01, 0.9, global_clipnorm=5.0),
    ),
}


@pytest.mark.parametrize("name", sharpest(KERAS, [name for name in KERAS if name not in WRITTEN_OUT]))
def test_as_keras(name: str) -> None:
    optimizer, reference = KERAS[name]
    assert_alike(trained(optimizer), trained_by_keras(reference()))


def test_adamw_decays_as_in_keras_what_is_not_excluded() -> None:
    optimizer = optimize.AdamWOptimizer(0.01, 0.8, 0.95, weight_decay=0.3, exclude_from_weight_decay=["^bias$"])
    reference = keras().optimizers.AdamW(0.01, 0.3, 0.8, 0.95, epsilon=1e-8)
    assert_alike(trained(optimizer), trained_by_keras(reference, exclude=("bias",)))


def test_lion_decays_as_in_keras_what_is_not_excluded() -> None:
    optimizer = optimize.LionOptimizer(0.01, weight_decay=0.3, exclude_from_weight_decay=["^bias$"])
    assert_alike(trained(optimizer), trained_by_keras(keras().optimizers.Lion(0.01, weight_decay=0.3), ("bias",)))


def by_numpy(update: Callable[[int, str, np.ndarray, np.ndarray, dict[str, Any]], np.ndarray]) -> Values:
    """`update(t, name, weight, gradient, state)` in float64, with a state that is empty at first."""
    values = {name: value.astype(np.float64) for name, value in initial().items()}
    state: dict[str, dict[str, Any]] = {name: {} for name in values}
    for t, grads in enumerate(gradients(), start=1):
        values = {n: update(t, n, w, grads[n].astype(np.float64), state[n]) for n, w in values.items()}
    return values


def moments(g: np.ndarray, state: dict[str, Any], beta_1: float, beta_2: float) -> tuple[np.ndarray, np.ndarray]:
    state["m"] = beta_1 * state.get("m", 0.0) + (1 - beta_1) * g
    state["v"] = beta_2 * state.get("v", 0.0) + (1 - beta_2) * g**2
    return state["m"], state["v"]


def test_adamw_follows_the_paper() -> None:
    """Where Keras does not: it adds epsilon to the root before the bias is corrected."""

    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        m, v = moments(g, state, 0.8, 0.95)
        return w - 0.01 * (m / (1 - 0.8**t) / (np.sqrt(v / (1 - 0.95**t)) + 0.5) + 0.1 * w)

    training = trained(optimize.AdamWOptimizer(0.01, 0.8, 0.95, epsilon=0.5, weight_decay=0.1))
    assert_alike(training, by_numpy(update))
    assert training["adam/step"] == NUM_STEPS


def test_decays_that_float32_rounds_to_1_take_plain_means() -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        state["m"], state["v"] = state.get("m", 0.0) + g, state.get("v", 0.0) + g**2
        return w - 0.01 * state["m"] / t / (np.sqrt(state["v"] / t) + 1e-8)

    assert_alike(trained(optimize.AdamOptimizer(0.01, 1 - 1e-9, 1 - 1e-9)), by_numpy(update))


def test_adam_weight_decay_does_not_correct_the_bias() -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        m, v = moments(g, state, 0.9, 0.999)
        return w - 0.01 * (m / (np.sqrt(v) + 1e-6) + (0.2 * w if name == "kernel" else 0))

    optimizer = optimize.AdamWeightDecayOptimizer(0.01, 0.2, exclude_from_weight_decay=["bias"])
    assert_alike(trained(optimizer), by_numpy(update))


def test_lamb_with_weight_decay_follows_the_paper() -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        m, v = moments(g, state, 0.9, 0.99)
        r = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-6) + 0.3 * w
        return w - 0.02 * np.linalg.norm(w) / np.linalg.norm(r) * r

    assert_alike(trained(optimize.LambOptimizer(0.02, 0.9, 0.99, weight_decay=0.3)), by_numpy(update))


@pytest.mark.parametrize("scales_momentum", [True, False])
def test_lars_follows_the_papers(scales_momentum: bool) -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        is_scaled = name == "kernel"
        decay = 0.3 if is_scaled else 0.0
        ratio = 0.1 * np.linalg.norm(w) / (np.linalg.norm(g) + decay * np.linalg.norm(w)) if is_scaled else 1.0
        inside, outside = (0.05 * ratio, 1.0) if scales_momentum else (1.0, 0.05 * ratio)
        state["v"] = 0.9 * state.get("v", 0.0) + inside * (g + decay * w)
        return w - outside * state["v"]

    optimizer = optimize.LarsOptimizer(0.05, 0.9, 0.3, 0.1, exclude=["bias"], scales_momentum=scales_momentum)
    assert_alike(trained(optimizer), by_numpy(update))


@pytest.mark.parametrize("momentum", [0.9, pytest.param(0.0, marks=pytest.mark.long)])
def test_sm3_follows_the_paper(momentum: float) -> None:
    """Its rows and columns are bounds of Adagrad's sums, and with one dimension they are the sums themselves."""

    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        bounds = [
            state.get(axis, np.zeros([n if i == axis else 1 for i in range(w.ndim)])) for axis, n in enumerate(w.shape)
        ]
        second = np.minimum.reduce([np.broadcast_to(bound, w.shape) for bound in bounds]) + g**2
        for axis in range(w.ndim):
            others = tuple(i for i in range(w.ndim) if i != axis)
            state[axis] = second.max(others, keepdims=True)
        state["sum"] = state.get("sum", 0.0) + g**2
        assert np.all(second >= state["sum"] * (1 - 1e-12))
        state["m"] = momentum * state.get("m", 0.0) + (1 - momentum) * g / np.sqrt(second)
        return w - 0.05 * state["m"]

    training = trained(optimize.Sm3Optimizer(0.05, momentum))
    assert_alike(training, by_numpy(update))
    assert ("kernel/sm3_m" in training.variables) == (momentum > 0)
    assert training.variables["kernel/sm3_rows"].shape == (8,)


@pytest.mark.parametrize("dims", ["m:4", "m:4 mm:3"])
def test_sm3_keeps_a_dimension_called_m_apart_from_its_mean(dims: str) -> None:
    def after_steps(names: str) -> np.ndarray:
        def step(x: mtf.Tensor) -> mtf.Tensor:
            loss = mtf.reduce_sum(mtf.square(mtf.get_variable(x.mesh, "w", names, initializer=mtf.ones) * x))
            optimize.Sm3Optimizer(0.1).minimize(loss)
            return loss

        training = InterpretedTraining(step, {"x": mtf.TensorSpec("")}, "all:1", "")
        for _ in range(3):
            training.step(x=np.float32(1))
        return training["w"]

    np.testing.assert_array_equal(after_steps(dims), after_steps(dims.replace("m", "n")))


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(x**2)))


def adafactor(
    t: int, w: np.ndarray, g: np.ndarray, state: dict[str, Any], *, factored: bool, rate: float, scales: bool
) -> np.ndarray:
    """Algorithms 4 and 5, with sums of rows and columns as the paper writes them."""
    decay = 1 - t**-0.8
    squares = g**2 + 1e-30
    if factored and w.ndim == 2:
        state["r"] = decay * state.get("r", 0.0) + (1 - decay) * squares.sum(1)
        state["c"] = decay * state.get("c", 0.0) + (1 - decay) * squares.sum(0)
        second = np.outer(state["r"], state["c"]) / state["r"].sum()
    else:
        second = state["v"] = decay * state.get("v", 0.0) + (1 - decay) * squares
    u = g / np.sqrt(second)
    return rate * (max(1e-3, rms(w)) if scales else 1.0) * u / max(1.0, rms(u))


@pytest.mark.parametrize("factored", [True, pytest.param(False, marks=pytest.mark.long)])
def test_adafactor_follows_the_paper(factored: bool) -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        return w - adafactor(t, w, g, state, factored=factored, rate=min(0.01, t**-0.5), scales=True)

    training = trained(optimize.AdafactorOptimizer(factored=factored))
    assert_alike(training, by_numpy(update))
    assert ("kernel/adafactor_vr" in training.variables) == factored


def test_adafactor_with_a_mean_of_updates_and_a_learning_rate() -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        change = adafactor(t, w, g, state, factored=True, rate=0.003, scales=False)
        state["m"] = 0.9 * state.get("m", 0.0) + 0.1 * change
        return w - state["m"]

    optimizer = optimize.AdafactorOptimizer(0.003, multiply_by_parameter_scale=False, beta_1=0.9)
    assert_alike(trained(optimizer), by_numpy(update))


def test_mesh_tensorflow_adafactor_does_not_factor_small_matrices() -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        return w - adafactor(t, w, g, state, factored=False, rate=0.05 * min(0.01, t**-0.5), scales=False)

    optimizer = optimize.AdafactorOptimizer(multiply_by_parameter_scale=False, is_mesh_tensorflow_variant=True)
    assert_alike(trained(optimizer), by_numpy(update))


def test_weight_decay_of_another_optimizer() -> None:
    def update(t: int, name: str, w: np.ndarray, g: np.ndarray, state: dict[str, Any]) -> np.ndarray:
        return w - 0.01 * g - (0.02 * w if name == "kernel" else 0)

    optimizer = optimize.WeightDecayOptimizer(optimize.SgdOptimizer(0.01), 0.02, exclude=["bias"])
    assert_alike(trained(optimizer), by_numpy(update))


def test_moving_average_is_the_weighted_mean_of_all_weights_so_far() -> None:
    weights, seen = {name: value.astype(np.float64) for name, value in initial().items()}, []
    for grads in gradients():
        weights = {name: value - 0.1 * grads[name] for name, value in weights.items()}
        seen.append(weights)
    shares = 0.9 ** np.arange(NUM_STEPS)[::-1]
    expected = {f"{n}/ema": np.average([w[n] for w in seen], axis=0, weights=shares) for n in weights}
    assert_alike(trained(optimize.MovingAverageOptimizer(optimize.SgdOptimizer(0.1), 0.9)), {**weights, **expected})


def state_sizes(weight: Callable[[mtf.Mesh], mtf.Tensor]) -> dict[str, str]:
    """Adafactor's state of a weight, as named shapes."""
    graph = mtf.Graph()
    with graph:
        w = weight(mtf.Mesh(graph))
        optimize.AdafactorOptimizer().minimize(mtf.reduce_sum(mtf.square(w)))
    return {n.rsplit("_", 1)[1]: str(v.shape) for n, v in graph.variables.items() if "/adafactor_v" in n}


def test_adafactor_factors_what_a_layer_sums_over_and_what_it_makes() -> None:
    """A weight without roles: its two largest dimensions. Attention's queries: all heads are one side. Experts, however
    many: each has a matrix of its own."""

    def queries(mesh: mtf.Mesh, matrix: Any = None) -> mtf.Tensor:
        return mtf.get_variable(mesh, "q", "d_model:32 heads:4 d_kv:8", matrix=matrix)

    assert state_sizes(queries) == {"vr": "heads:4 d_kv:8", "vc": "d_model:32 heads:4"}
    matrix = ("d_model:32", "heads:4 d_kv:8")
    assert state_sizes(lambda mesh: queries(mesh, matrix)) == {"vr": "d_model:32", "vc": "heads:4 d_kv:8"}
    experts = ("d_model:8", "d_ff:16")
    found = state_sizes(lambda mesh: mtf.get_variable(mesh, "wi", "experts:64 d_model:8 d_ff:16", matrix=experts))
    assert found == {"vr": "experts:64 d_model:8", "vc": "experts:64 d_ff:16"}


def test_a_factored_weight_of_three_dimensions_is_trained_as_the_matrix_that_it_is() -> None:
    w = np.random.default_rng(0).normal(size=(6, 2, 4)).astype(np.float32)

    def weights_after(shape: str, matrix: Any) -> np.ndarray:
        def step(x: mtf.Tensor) -> mtf.Tensor:
            own = mtf.convert_to_shape(shape)
            v = mtf.get_variable(x.mesh, "w", own, initializer=w.reshape(own.to_integer_list), matrix=matrix)
            flat = mtf.reshape(v, "a:6 n:8")
            optimize.AdafactorOptimizer().minimize(mtf.reduce_sum(mtf.square(mtf.einsum([x, flat], "n:8"))))
            return mtf.reshape(mtf.read_variable(v), "a:6 n:8")

        return mtf.testing.interpret(step, {"x": ("a:6", np.arange(6, dtype=np.float32))}, "rows:1").results

    as_matrix = weights_after("a:6 n:8", None)
    assert_close(weights_after("a:6 b:2 c:4", ("a:6", "b:2 c:4")), as_matrix, terms=TERMS)
