"""Quantization-aware training: results, gradients and ranges are NumPy's, and inference gives the same results."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError, UsageError
from meshtf.quantization import (
    Quantization,
    QuantizationAware,
    kernel_product,
    move_ranges,
    observed_inputs,
    quantization_aware,
    quantize_store,
    quantized_weights,
)
from meshtf.testing import assert_close, interpret

generator = np.random.default_rng(0)
X, W, C = (generator.normal(size=shape).astype(np.float32) for shape in ([3, 24], [24, 6], [3, 6]))
ONE_CORE = mtf.SpmdMeshImpl("all:1", "")
SPECS = {"x": mtf.TensorSpec("batch:3 hidden:24")}
STATIC = Quantization("int4", group_size=8, activations="static")
POLICY = QuantizationAware(STATIC, start_step=1, momentum=0.75)


def product(x: mtf.Tensor) -> mtf.Tensor:
    kernel = mtf.get_variable(x.mesh, "kernel", "hidden:24 d_ff:6", initializer=W, matrix=("hidden", "d_ff"))
    return kernel_product(x, kernel, "batch d_ff")


def training_step(x: mtf.Tensor) -> list[mtf.Tensor]:
    """y, and the gradients of the sum of y * C."""
    with quantization_aware(POLICY, is_training=True) as ranges:
        y = product(x)
    move_ranges(POLICY, ranges)
    loss = mtf.reduce_sum(y * mtf.constant(x.mesh, C, "batch:3 d_ff:6"))
    (kernel,) = x.graph.trainable_variables
    by_x, by_kernel = mtf.gradients([loss], [x, kernel.value])
    assert by_x is not None
    assert by_kernel is not None
    return [y, by_x, by_kernel]


def evaluation(x: mtf.Tensor) -> mtf.Tensor:
    with quantization_aware(POLICY, is_training=False):
        return product(x)


def inference(x: mtf.Tensor) -> mtf.Tensor:
    with quantized_weights(STATIC):
        return product(x)


def test_steps_are_numpys_and_inference_computes_the_same() -> None:
    """The first step rounds nothing. The second one rounds by the first one's range, beyond which are many inputs."""
    mesh_impl = mtf.SpmdMeshImpl("rows:2;cols:2", "batch:rows;hidden:cols")
    step = mtf.function(training_step, mesh_impl, SPECS)
    for found, expected in zip(step(x=X), [X @ W, C @ W.T, X.T @ C], strict=True):
        assert_close(found.numpy(), expected, terms=24)
    limit, second = np.abs(X).max(), X * np.float32(4)
    assert step.variables["kernel/input_range"] == limit

    x_scale, w = limit / np.float32(127), W.reshape(3, 8, 6)
    w_scale = np.abs(w).max(1, keepdims=True) / np.float32(7)
    rounded_x = np.clip(np.rint(second / x_scale), -127, 127) * x_scale
    rounded_w = (np.rint(w / w_scale) * w_scale).reshape(24, 6)
    is_within = np.abs(second) <= limit
    assert 0.2 < is_within.mean() < 0.8
    y, *grads = step(x=second)
    for found, expected in zip(grads, [C @ rounded_w.T * is_within, rounded_x.T @ C], strict=True):
        assert_close(found.numpy(), expected, terms=24)
    assert_close(y.numpy(), rounded_x @ rounded_w, terms=24, magnitude=float(limit))
    moved = np.float32(0.75) * limit + np.float32(0.25) * np.abs(second).max()
    np.testing.assert_allclose(step.variables["kernel/input_range"], moved, rtol=3 * 2.0**-24)
    for number in (np.inf, np.nan):  # neither moves the range, and NaN is not rounded away
        second_row = second.copy()
        second_row[1, 2] = number
        y, *_ = step(x=second_row)
        assert np.isnan(y.numpy()).all(1).tolist() == [False, np.isnan(number), False]
        np.testing.assert_allclose(step.variables["kernel/input_range"], moved, rtol=3 * 2.0**-24)

    program = mtf.function(evaluation, mesh_impl, SPECS, variables=step.variables)
    store = quantize_store(program, STATIC, {"kernel": step.variables["kernel/input_range"]})
    assert sorted(store) == ["kernel/int4", "kernel/int4_input_scale", "kernel/int4_scale"]
    exact = mtf.function(inference, mesh_impl, SPECS, variables=store)(x=second).numpy()
    assert_close(program(x=second).numpy(), exact, terms=24, magnitude=float(limit))


def test_dynamic_activations_are_rounded_row_by_row() -> None:
    """Gradients pass the rounding of x, and see the rounded weights."""

    def body(x: mtf.Tensor) -> list[mtf.Tensor | None]:
        with quantization_aware(QuantizationAware(Quantization(activations="dynamic")), is_training=False):
            y = product(x)
        return [y, *mtf.gradients([mtf.reduce_sum(y * mtf.constant(x.mesh, C, "batch:3 d_ff:6"))], [x])]

    inputs = {"x": ("batch:3 hidden:24", X)}
    y, by_x = interpret(body, inputs, "rows:2;cols:2", "batch:rows;hidden:cols").results
    scales = np.abs(X).max(1, keepdims=True) / np.float32(127), np.abs(W).max(0) / np.float32(127)
    x, w = (np.rint(each / scale) * scale for each, scale in zip((X, W), scales, strict=True))
    assert_close(y, x @ w, terms=24)
    assert_close(by_x, C @ w.T, terms=6)


def test_layers_are_left_floating() -> None:
    """Two layers, of which the second one is rounded neither in training nor by a store for inference."""
    policy = Quantization("int4", activations="static", floating=["second"])

    def layers(x: mtf.Tensor) -> mtf.Tensor:
        h = mtf.layers.dense(x, "d_ff:6", use_bias=False, name="first")
        return mtf.layers.dense(h, "d_out:5", use_bias=False, name="second")

    def aware(x: mtf.Tensor) -> mtf.Tensor:
        with quantization_aware(QuantizationAware(policy), is_training=False):
            return layers(x)

    def small(x: mtf.Tensor) -> mtf.Tensor:
        with quantized_weights(policy):
            return layers(x)

    program = mtf.function(layers, ONE_CORE, SPECS)
    program.initialize()
    store = quantize_store(program, policy, {"first/kernel": 3.0, "second/kernel": 1.0})
    kept = ["first/kernel/int4", "first/kernel/int4_input_scale", "first/kernel/int4_scale", "second/kernel"]
    assert sorted(store) == kept
    trained = mtf.function(aware, ONE_CORE, SPECS)
    trained.initialize()
    assert sorted(trained.variables) == ["first/kernel", "first/kernel/input_range", "second/kernel"]
    for name in ("first/kernel", "second/kernel"):
        trained.variables[name] = program.variables[name]
    trained.variables["first/kernel/input_range"] = np.float32(3)
    found = mtf.function(small, ONE_CORE, SPECS, variables=store)(x=X).numpy()
    assert_close(found, trained(x=X).numpy(), terms=30, magnitude=3.0)
    unknown = Quantization(floating=["secnd"])
    with pytest.raises(GraphError, match=r'has "secnd", which .* first/kernel, second/kernel; did you mean "second"'):
        quantize_store(program, unknown)
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "batch:3 hidden:24")
    with (
        x.graph,
        pytest.raises(GraphError, match="is not a scope of the kernels first/kernel, second/kernel"),
        quantization_aware(QuantizationAware(unknown), is_training=True),
    ):
        layers(x)


def test_a_program_may_have_a_part_of_the_layers() -> None:
    """As one that reads a prompt has no logits. The scope of these is none of its kernels, and no mistake."""
    policy = Quantization(floating=["logits"])
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "batch:3 hidden:24")
    with x.graph:
        for kept in (quantized_weights(policy), quantization_aware(QuantizationAware(policy), is_training=False)):
            with kept:
                mtf.layers.dense(x, "d_ff:6", use_bias=False)


LEARNED = QuantizationAware(Quantization("int4", activations="static"), start_step=50)
LEARNING = {"x": mtf.TensorSpec("batch:256 inputs:16"), "targets": mtf.TensorSpec("batch:256 outputs:1")}


def loss(x: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
    for number in range(2):
        x = mtf.layers.dense(x, [("hidden", 64)], activation=mtf.tanh, name=f"layer_{number}")
    return mtf.reduce_mean(mtf.square(mtf.layers.dense(x, targets.shape[-1:], name="last") - targets))


def plain_step(x: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
    value = loss(x, targets)
    mtf.optimize.AdamWOptimizer(2e-3).minimize(value)
    return value


def rounded_step(x: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
    with quantization_aware(LEARNED, is_training=True) as ranges:
        value = loss(x, targets)
    move_ranges(LEARNED, ranges)
    mtf.optimize.AdamWOptimizer(2e-3).minimize(value)
    return value


def observation(x: mtf.Tensor, targets: mtf.Tensor) -> dict[str, mtf.Tensor]:
    with observed_inputs() as ranges:
        loss(x, targets)
    return dict(ranges)


def quantized_loss(x: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
    with quantized_weights(LEARNED.quantization):
        return loss(x, targets)


@pytest.mark.long
def test_it_keeps_more_than_quantization_after_training() -> None:
    """A network learns a function. Then it learns on for as many steps: as it is, or with rounding.

    Both are quantized to int4 and static int8. The second one loses less than half as much.
    """
    drawn = np.random.default_rng(1).normal(size=[256, 16]).astype(np.float32)
    targets = np.sin(drawn @ np.random.default_rng(2).normal(size=[16, 1]).astype(np.float32) / 2)
    given = {"x": drawn, "targets": targets}
    first = mtf.function(plain_step, ONE_CORE, LEARNING)
    for _ in range(500):
        first(**given)
    after: dict[str, float] = {}
    for name, body in {"as it is": plain_step, "with rounding": rounded_step}.items():
        step = mtf.function(body, ONE_CORE, LEARNING)
        step.initialize()
        for variable in first.variables:
            step.variables[variable] = first.variables[variable]
        for _ in range(500):
            step(**given)
        plain = mtf.function(loss, ONE_CORE, LEARNING, variables=step.variables)
        observed = mtf.function(observation, ONE_CORE, LEARNING, variables=step.variables)(**given)
        kept = {n: step.variables[f"{n}/input_range"] if body is rounded_step else x for n, x in observed.items()}
        store = quantize_store(plain, LEARNED.quantization, {n: np.asarray(x) for n, x in kept.items()})
        after[f"{name}, in float32"] = float(plain(**given))
        after[name] = float(mtf.function(quantized_loss, ONE_CORE, LEARNING, variables=store)(**given))
    least = after["as it is, in float32"]
    assert after["with rounding"] - least < (after["as it is"] - least) / 2, after


def test_mistakes_are_told() -> None:
    with pytest.raises(GraphError, match=r"QuantizationAware\.start_step must be an integer, 0 or more, and is -1"):
        QuantizationAware(start_step=-1)
    with pytest.raises(GraphError, match="momentum must be a number of at least 0 and below 1, and is 1"):
        QuantizationAware(momentum=1)
    with mtf.Graph(), pytest.raises(GraphError, match="needs a program with one mesh, and this one has 0"):
        move_ranges(POLICY, {})
    with mtf.Graph() as graph:
        x = mtf.ones(mtf.Mesh(graph), "batch:3 hidden:24")
        with observed_inputs() as ranges:
            product(x)
        with pytest.raises(GraphError, match=r'kernel "kernel" has no moving range; .* with static act'):
            move_ranges(POLICY, ranges)
        with (
            pytest.raises(UsageError, match=r"needs a QuantizationAware, such as .*, not Quantization\("),
            quantization_aware(STATIC, is_training=True),  # type: ignore[arg-type]
        ):
            product(x)
