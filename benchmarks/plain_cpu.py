"""What makes a CPU with AVX-512 compute as one without, for tests (`tests/plain_cpu.py`) and for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping

RESTRICTIONS = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""What TensorFlow, oneDNN and XLA's compiler read when they start, so that it takes processes of its own.

TensorFlow turns oneDNN on only where the CPU has AVX-512 VNNI or bfloat16, AVX-VNNI or AMX; its own kernels take
float32 products from oneDNN all the same. JAX has the flags of XLA.
"""


def restricted(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the restrictions, beside XLA flags that are there."""
    flags = [environment[name] for name in ("XLA_FLAGS",) if name in environment]
    return {**environment, **RESTRICTIONS, "XLA_FLAGS": " ".join([*flags, RESTRICTIONS["XLA_FLAGS"]])}


def assignments() -> str:
    """The restrictions as a shell would be given them."""
    return " ".join(f"{name}={value}" for name, value in RESTRICTIONS.items())
