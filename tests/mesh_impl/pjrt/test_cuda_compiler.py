"""The compiler of CUDA's plugin, for an H200 that is not there: it takes the programs that a GPU would be given.

It needs the extra `cuda13` or `cuda12`, and no GPU. Kernels are not tuned, since nothing can run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from benchmarks import decoding
from benchmarks.gpu import cuda_compiler, sample_operations
from benchmarks.gpu.attention import KINDS, attention_step
from benchmarks.gpu.counted import Counted
from benchmarks.gpu.steps import tiny_gpt2
from meshtf.quantization import Quantization, quantized_weights
from meshtf.thresholds import ITERATIONS_PER_CHECK
from tests.fresh_process import run_fresh

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def h200() -> Sequence[Any]:
    """The compiler's device."""
    if (why := cuda_compiler.why_no_compiler()) is not None:
        pytest.skip(why)
    return cuda_compiler.h200()


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> mtf.GpuMeshImpl:
    """A mesh whose programs have the kernels of a GPU."""
    monkeypatch.setattr(mtf.GpuMeshImpl, "kernel_platform", "cuda")
    return mtf.GpuMeshImpl("all:1", "")


@pytest.mark.parametrize("kind", KINDS)
def test_it_takes_fused_attention(kind: str, on_a_gpu: mtf.GpuMeshImpl, h200: Sequence[Any]) -> None:
    compiled = _compiled(attention_step(kind, on_a_gpu, is_fused=True), h200)
    assert compiled.count('custom_call_target="__cudnn$fmha') == 2


def test_it_takes_a_model(on_a_gpu: mtf.GpuMeshImpl, h200: Sequence[Any]) -> None:
    """Layers are unrolled: each has a call forward and one backward."""
    step, _ = tiny_gpt2().made(on_a_gpu)
    assert _compiled(step, h200).count('custom_call_target="__cudnn$fmha') == 4


def test_it_takes_the_sample_of_operations(on_a_gpu: mtf.GpuMeshImpl, h200: Sequence[Any]) -> None:
    """`make gpu-check` runs it on a GPU: products of int8, a loop that is asked every eighth time, blocks of logits."""
    step = mtf.function(sample_operations.program, on_a_gpu, inputs=sample_operations.INPUTS)
    compiled = _compiled(step, h200)
    assert re.search(r"= s32\S* (dot|custom-call)\(", compiled)
    assert compiled.count(f'"known_trip_count":{{"n":"{ITERATIONS_PER_CHECK}"') == 1


IN_PROGRAMS = {
    "float8_e4m3": ("f8e4m3fn", r"= f32\S* dot\((\S+), (\S+)\).*operand_precision={highest,highest}", "$f8"),
    "int8": ("s8", r"= s32\S* dot\((\S+), (\S+)\)", ""),
}
"""The type of each format's numbers, a product with its operands, and how the name of cuBLAS's product ends."""


@pytest.mark.parametrize(
    ("weights", "activations"), [("float8_e4m3", "dynamic"), ("float8_e4m3", "static"), ("int8", "dynamic")]
)
def test_it_multiplies_numbers_of_8_bits(
    weights: str, activations: str, on_a_gpu: mtf.GpuMeshImpl, h200: Sequence[Any]
) -> None:
    """Two dense layers: by Triton, or by cuBLAS where XLA has no Triton. On a GPU, XLA tries which is faster."""

    def layers(x: mtf.Tensor) -> mtf.Tensor:
        with quantized_weights(Quantization(weights, activations=activations)):
            h = mtf.layers.dense(x, "d_ff:128", activation="relu", name="first")
            return mtf.layers.dense(h, "hidden:64", name="second")

    step = mtf.function(layers, on_a_gpu, {"x": mtf.TensorSpec("batch:32 hidden:64")})
    numbers, product, ending = IN_PROGRAMS[weights]
    dots = re.findall(product, by_triton := _compiled(step, h200))
    assert len(dots) == 2
    assert all(f"{operand} = {numbers}[" in by_triton for pair in dots for operand in pair)
    by_cublas = _compiled(step, h200, ("xla_gpu_enable_triton_gemm", False))
    assert by_cublas.count(f'custom_call_target="__cublas$lt$matmul{ending}"') == 2


def test_kernels_hand_on_what_the_program_rounds(on_a_gpu: mtf.GpuMeshImpl, h200: Sequence[Any]) -> None:
    """A bias, gelu and the sums of their gradient in bfloat16: no kernel writes the hidden layer in float32."""
    rows, d, hidden = mtf.Dimension("rows", 4096), mtf.Dimension("d", 64), mtf.Dimension("hidden", 512)

    def train(x: mtf.Tensor) -> mtf.Tensor:
        h = mtf.layers.dense(x, [hidden], activation=mtf.gelu, name="in")
        loss = mtf.reduce_mean(mtf.square(mtf.layers.dense(h, [d], name="out").astype(tf.float32)))
        mtf.optimize.AdamWOptimizer(1e-2).minimize(loss)
        return loss

    policy = mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16)
    step = mtf.function(train, on_a_gpu, {"x": mtf.TensorSpec([rows, d], tf.bfloat16)}, variable_dtype=policy)
    program = _compiled(step, h200).split("ENTRY", 1)[1]
    made = [line.split(" fusion(")[0] for line in program.splitlines() if " fusion(" in line]
    assert any("bf16[4096,512]" in line for line in made)
    assert not [line for line in made if "f32[4096,512]" in line.replace("bf16", "narrow")]


def test_the_host_knows_how_many_tokens_come_next(on_a_gpu: mtf.GpuMeshImpl, h200: Sequence[Any]) -> None:
    """The loop inside has a known number of iterations, and neither loop copies a cache."""
    program = _compiled(decoding.program_on(on_a_gpu), h200)
    loops = [line for line in program.splitlines() if " while(" in line]
    known = [re.findall(r'"known_trip_count":\{"n":"(\d+)"', line) for line in loops]
    assert sorted(known) == [[], [str(ITERATIONS_PER_CHECK)]]
    cache = rf"f32\[{decoding.BATCH},4,{decoding.PROMPT + decoding.NEW},32\]"
    assert len(re.findall(cache, loops[0])) >= 8  # keys and values of four layers
    assert not re.search(rf"= {cache}\S* copy\(", program)


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize("system", ["meshtf", "jax"])
def test_kernels_are_counted(system: str) -> None:
    """Also those of JAX's own program. In both, each of the two layers has cuDNN's attention, forward and backward."""
    ended = run_fresh(["-m", "benchmarks.gpu.counted", "--one", system, "GPT-2 of two small layers"])
    assert ended.status == 0, ended.stderr
    found = Counted.read(ended.stdout.splitlines()[-1])
    calls = {kind: number for kind, number in found.kernels.items() if "__cudnn$fmha" in kind}
    assert calls == {"custom-call __cudnn$fmhaSoftmax": 2, "custom-call __cudnn$fmhaSoftmaxBackward": 2}
    assert sum(found.kernels.values()) < 200
    assert found.memory < sum(found.bytes.values()) < 2 << 20


def _compiled(step: mtf.Function, devices: Sequence[Any], *overrides: tuple[str, object]) -> str:
    """The optimized program as text."""
    hlo = step.hlo()
    assert hlo is not None
    program = cuda_compiler.compiled_hlo(hlo, devices, *overrides)
    return "\n".join(module.to_string() for module in program.hlo_modules())
