"""Quantization-aware training: results, gradients and ranges are NumPy's, and inference gives the same results."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.errors import GraphError, MeshtfError
from meshtf.quantization import (
    Quantization,
    QuantizationAware,
    kernel_product,
    move_ranges,
    quantization_aware,
    quantize_store,
    quantized_weights,
)
from meshtf.testing import assert_close

generator = np.random.default_rng(0)
X, W, C = (generator.normal(size=shape).astype(np.float32) for shape in ([3, 24], [24, 6], [3, 6]))
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

    program = mtf.function(evaluation, mesh_impl, SPECS, variables=step.variables)
    plain = mtf.function(product, mesh_impl, SPECS, variables=step.variables)
    store = quantize_store(plain, STATIC, {"kernel": step.variables["kernel/input_range"]})
    exact = mtf.function(inference, mesh_impl, SPECS, variables=store)(x=second).numpy()
    assert_close(program(x=second).numpy(), exact, terms=24, magnitude=float(limit))


def test_mistakes_are_told() -> None:
    with pytest.raises(MeshtfError, match=r"QuantizationAware\.start_step must be an integer, 0 or more, and is -1"):
        QuantizationAware(start_step=-1)
    with pytest.raises(MeshtfError, match="momentum must be a number from 0 up to 1, without 1, and is 1"):
        QuantizationAware(momentum=1)
    with mtf.Graph(), pytest.raises(GraphError, match="needs a program with one mesh, and this one has 0"):
        move_ranges(POLICY, {})
