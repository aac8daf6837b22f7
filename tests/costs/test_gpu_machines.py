"""GPUs as machines: predicted steps beside those that one H200 took, and products as large as were measured."""

from __future__ import annotations

import dataclasses

import pytest

import meshtf as mtf
from benchmarks.gpu.steps import PROGRAMS, Gpt2, Sized, Vit
from meshtf.costs import MatrixProduct, Prediction, Work, load_machine, predict, seconds_of

H200 = load_machine("h200")

PACKED = "GPT-2 124M, bfloat16, 16 x 1024, several examples to a row"

SEEN = {
    "GPT-2 124M, bfloat16, 8 x 1024": 22.7,
    PACKED: 38.0,
    "GPT-2 124M, float32, 8 x 1024": 55.5,
    "16 experts of 1024 x 4096, 16 x 1024 tokens": 22.4,
    "the small Transformer": 2.56,
    "decoding, 16 prompts, 64 tokens": 11.1,
}
"""Milliseconds of a step on one H200, on 2026-11-27."""

SEEN_LEAN = {"GPT-2 124M, bfloat16, 8 x 1024": 39.4, "GPT-2 124M, bfloat16, 16 x 1024": 65.6}
"""The same on 2026-11-26, without cuDNN's attention."""

RESNET, RESNET_BUSY = "ResNet-50, 64 images of 224 x 224", 19.9
"""The milliseconds in which the kernels of ResNet-50's step ran, on 2026-11-27."""


@pytest.mark.parametrize("name", SEEN)
def test_steps_are_predicted_within_a_quarter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = Gpt2(16, is_packed=True) if name == PACKED else PROGRAMS[name]
    if isinstance(program, Sized):
        for constant in program.sizes:  # which come back when the test ends
            monkeypatch.setattr(f"{program.module}.{constant}", program.sizes[constant])
    assert 1 / 1.25 < _predicted(program).seconds / (1e-3 * SEEN[name]) < 1.25


@pytest.mark.parametrize("name", SEEN_LEAN)
def test_attention_without_a_kernel_is_predicted_within_a_quarter(name: str) -> None:
    program = PROGRAMS[name]
    assert isinstance(program, Gpt2)
    lean = dataclasses.replace(program, bindings=("SelfAttention.algorithm='lean'",))
    assert 1 / 1.25 < _predicted(lean).seconds / (1e-3 * SEEN_LEAN[name]) < 1.25


@pytest.mark.long
def test_the_work_of_resnet_is_predicted_within_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[RESNET]
    assert isinstance(program, Sized)
    for constant in program.sizes:
        monkeypatch.setattr(f"{program.module}.{constant}", program.sizes[constant])
    found = _predicted(program)
    assert 1 / 1.25 < (found.seconds - found.parts.start) / (1e-3 * RESNET_BUSY) < 1.25


def _predicted(program: Gpt2 | Sized | Vit) -> Prediction:
    step, _ = program.made(mtf.PlanMeshImpl("all:1", "", kernel_platform=H200.kernel_platform))
    return predict(step.report(), H200)


def test_a_large_product_takes_what_was_measured() -> None:
    """790 TFLOP/s on an H200, in bfloat16."""
    assert _teraflops(8192, 8192, 8192) == pytest.approx(790, rel=0.02)


def test_small_and_unaligned_products_reach_less() -> None:
    assert _teraflops(2048, 256, 1024) < 0.5 * _teraflops(16384, 768, 3072) < 0.5 * _teraflops(8192, 8192, 8192)
    assert _teraflops(16384, 50257, 768) < 0.6 * _teraflops(16384, 50304, 768)


def test_a_product_beside_elementwise_work_goes_through_memory() -> None:
    """[m, k] by [k, n], then relu: a TPU writes only the result of relu, and a GPU writes the product, and reads it."""
    m, k, n = (mtf.Dimension(name, 1024) for name in ("m", "k", "n"))

    def program(x: mtf.Tensor, w: mtf.Tensor) -> mtf.Tensor:
        return mtf.relu(mtf.einsum([x, w], [m, n]))

    inputs = {"x": mtf.TensorSpec([m, k]), "w": mtf.TensorSpec([k, n])}
    report = mtf.function(program, mtf.PlanMeshImpl("all:1", ""), inputs=inputs).report()
    one = 4 * 1024 * 1024
    assert [o.fused_bytes_read + o.fused_bytes_written for o in report.operations] == [2 * one, one]
    assert [o.bytes_beside_products for o in report.operations] == [3 * one, 2 * one]


def test_inputs_come_before_the_step() -> None:
    rows = mtf.Dimension("rows", 1 << 20)
    step = mtf.function(mtf.reduce_sum, mtf.PlanMeshImpl("all:1", ""), inputs={"x": mtf.TensorSpec([rows])})
    slow, there = (dataclasses.replace(H200, host_bandwidth=b) for b in (1e9, float("inf")))
    rise = predict(step.report(), slow).parts.start - predict(step.report(), there).parts.start
    assert rise == pytest.approx(4 * (1 << 20) / 1e9)


def _teraflops(rows: int, columns: int, contracted: int) -> float:
    product = MatrixProduct(1, rows, columns, contracted)
    moved = 2 * (rows * contracted + contracted * columns + rows * columns)
    return product.flops / seconds_of(Work(product.flops, moved, "bfloat16", (product,)), H200) / 1e12
