"""Makes a CPU with AVX-512 compute as one without, for tests (`tests/plain_cpu.py`) and for benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LEFT_OUT = ("avx512", "amx", "avx10", "avx_vnni")
"""How the names of what is left out begin, in /proc/cpuinfo."""
RESTRICTIONS = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""Variables that TensorFlow, oneDNN and XLA's compiler read when they start, so that they need a process of their own.

TensorFlow turns oneDNN on only where the CPU has AVX-512 VNNI or bfloat16, AVX-VNNI or AMX; its own kernels take
float32 products from oneDNN all the same. JAX has the flags of XLA.
"""


def flags_of_this_cpu(cpuinfo: str) -> str:
    """The flags of the first processor in the text of /proc/cpuinfo; empty on other architectures without AVX-512."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value for name, _, value in lines if name.strip() == "flags"), "")


def is_plain(cpu_flags: str) -> bool:
    """Whether a CPU with these flags, as /proc/cpuinfo lists them, has nothing that the restrictions leave out."""
    return not any(flag.startswith(LEFT_OUT) for flag in cpu_flags.split())


def this_cpu_is_plain() -> bool:
    """Whether there is nothing to leave out on this machine."""
    cpuinfo = Path("/proc/cpuinfo")
    return is_plain(flags_of_this_cpu(cpuinfo.read_text("utf-8") if cpuinfo.exists() else ""))


def restricted(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the restrictions, beside XLA flags that are there."""
    flags = [environment[name] for name in ("XLA_FLAGS",) if name in environment]
    return {**environment, **RESTRICTIONS, "XLA_FLAGS": " ".join([*flags, RESTRICTIONS["XLA_FLAGS"]])}


def assignments() -> str:
    """The restrictions as a shell would be given them."""
    return " ".join(f"{name}={value}" for name, value in RESTRICTIONS.items())
