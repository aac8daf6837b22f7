"""The compiler of CUDA's plugin, for an H200 that is not there: it takes the programs that a GPU would be given.

It needs the extra `cuda13` or `cuda12`, and no GPU. Kernels are not tuned, since nothing can run.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from jax._src.interpreters import mlir
from jaxlib import _jax, xla_client

import meshtf as mtf
from benchmarks import decoding
from benchmarks.gpu import sample_operations
from benchmarks.gpu.attention import KINDS, attention_step
from benchmarks.gpu.steps import tiny_gpt2
from meshtf.mesh_impl.pjrt import pjrt
from meshtf.quantization import Quantization, quantized_weights
from meshtf.thresholds import ITERATIONS_PER_CHECK

pytestmark = pytest.mark.long

_H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535 block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 52428800
  clock_rate_ghz: 1.98 device_memory_size: 151397597184 shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 feature_extension: ACCELERATED_FEATURES }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 }
runtime_version { major: 13 }
device_description_str: "NVIDIA H200"
"""
"""XLA's GpuTargetConfigProto, with figures of NVIDIA's documentation."""


@pytest.fixture(scope="module")
def h200() -> Sequence[Any]:
    """The compiler's device."""
    found = [n for n in ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12") if _is_there(n)]
    if not found:
        pytest.skip("no plugin of CUDA is installed: pip install 'meshtf[cuda13]'")
    library = Path(str(importlib.import_module(found[0]).__file__)).with_name("xla_cuda_plugin.so")
    plugin = xla_client.load_pjrt_plugin_dynamically("cuda", str(library))
    xla_client.initialize_pjrt_plugin("cuda")
    topology = xla_client.make_c_api_device_topology(plugin, "1x1x1", target_config=_H200, topology="1 x 1 x 1")
    return topology._make_compile_only_devices()


def _is_there(module: str) -> bool:
    package = module.split(".", maxsplit=1)[0]
    return importlib.util.find_spec(package) is not None and importlib.util.find_spec(module) is not None


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


def _compiled(step: mtf.Function, devices: Sequence[Any], *overrides: tuple[str, object]) -> str:
    """The optimized program as text."""
    hlo = step.hlo()
    assert hlo is not None
    options = pjrt._options(devices)
    options.env_option_overrides = [*options.env_option_overrides, ("xla_gpu_autotune_level", "0"), *overrides]
    with mlir.make_ir_context():
        program = devices[0].client.compile(pjrt._module(hlo), _jax.DeviceList(tuple(devices)), options)
    return "\n".join(module.to_string() for module in program.hlo_modules())
