"""The compiler in JAX's CUDA plugin, for an H200 that need not be there.

It needs the extra `cuda13` or `cuda12`, and no GPU. Kernels are not tuned, since nothing can run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import jax
from jax._src.interpreters import mlir  # noqa: TID251  # JAX's public names give the compiler no module and options
from jax.experimental import topologies
from jaxlib import _jax  # noqa: TID251  # as above

from meshtf.mesh_impl.pjrt import pjrt

_PLUGINS = ("jax_plugins.xla_cuda13", "jax_plugins.xla_cuda12")

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

_NOT_TUNED = ("xla_gpu_autotune_level", "0")


def why_no_compiler() -> str | None:
    """Returns None, or the reason why this process has no compiler for CUDA."""
    if importlib.util.find_spec("jax_plugins") and any(map(importlib.util.find_spec, _PLUGINS)):
        return None
    return "CUDA's compiler is not installed. It is in JAX's CUDA plugin: pip install 'meshtf[cuda13]'"


def h200() -> Sequence[Any]:
    """Returns the device to compile for."""
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", "cpu")  # or JAX would check libraries that only a GPU needs
    try:
        topology = topologies.get_topology_desc("1x1x1", platform="cuda", target_config=_H200, topology="1 x 1 x 1")
    finally:
        jax.config.update("jax_platforms", before)
    return topology.devices


def compiled_hlo(hlo: bytes, devices: Sequence[Any], *overrides: tuple[str, object]) -> Any:
    """Compiles a meshtf program with the options that meshtf gives a GPU's compiler, and with these."""
    options = pjrt._options(devices)
    options.env_option_overrides = [*options.env_option_overrides, _NOT_TUNED, *overrides]
    with mlir.make_ir_context():
        return _compiled(pjrt._module(hlo), devices, options)


def compiled_stablehlo(module: Any, devices: Sequence[Any]) -> Any:
    """Compiles a module that JAX has lowered for CUDA."""
    options = pjrt._options(devices)
    options.env_option_overrides = [_NOT_TUNED]
    return _compiled(module, devices, options)


def _compiled(module: Any, devices: Sequence[Any], options: Any) -> Any:
    return devices[0].client.compile(module, _jax.DeviceList(tuple(devices)), options)
