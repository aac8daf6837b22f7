"""GPUs as machines: predicted steps beside those that one H200 took, and products as large as were measured."""

from __future__ import annotations

import dataclasses

import pytest

import meshtf as mtf
from benchmarks.gpu.steps import PROGRAMS, Gpt2
from meshtf.costs import MatrixProduct, Work, load_machine, predict, seconds_of

H200 = load_machine("h200")

SEEN = {
    "GPT-2 124M, bfloat16, 8 x 1024": 39.4,
    "GPT-2 124M, bfloat16, 16 x 1024": 65.6,
    "GPT-2 124M, float32, 8 x 1024": 58.5,
    "ResNet-50, 64 images of 224 x 224": 39.6,
    "16 experts of 1024 x 4096, 16 x 1024 tokens": 36.4,
    "the small Transformer": 2.68,
    "decoding, 16 prompts, 64 tokens": 17.6,
}
"""Milliseconds of a step on one H200, on 2026-11-26."""

_HEAVY = "ResNet-50, 64 images of 224 x 224"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.long] if name == _HEAVY else []) for name in SEEN]
)
def test_steps_are_predicted_within_a_quarter(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = PROGRAMS[name]
    if isinstance(program, Gpt2):
        program = dataclasses.replace(program, bindings=("SelfAttention.algorithm='lean'",))
    else:
        for constant in program.sizes:  # which come back when the test ends
            monkeypatch.setattr(f"{program.module}.{constant}", program.sizes[constant])
    step, _ = program.made(mtf.PlanMeshImpl("all:1", ""))
    assert 1 / 1.25 < 1e3 * predict(step.report(), H200).seconds / SEEN[name] < 1.25


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
