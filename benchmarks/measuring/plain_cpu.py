"""Makes a CPU with AVX-512 compute like one without, for tests (`tests/plain_cpu.py`) and benchmarks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LEFT_OUT = ("avx512", "amx", "avx10", "avx_vnni")
"""Prefixes of the disabled CPU features, as named in /proc/cpuinfo."""
RESTRICTIONS = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""Variables that TensorFlow, oneDNN and XLA's compiler read when they start, so that a new process is needed.

TensorFlow turns on oneDNN only if the CPU has AVX-512 VNNI or bfloat16, AVX-VNNI or AMX. But its own kernels always use
oneDNN for float32 products. JAX reads XLA's flags.
"""


def flags_of_this_cpu(cpuinfo: str) -> str:
    """The flags of the first processor in the text of /proc/cpuinfo; empty on other architectures without AVX-512."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value for name, _, value in lines if name.strip() == "flags"), "")


def is_plain(cpu_flags: str) -> bool:
    """Whether a CPU with these flags from /proc/cpuinfo has no features that the restrictions disable."""
    return not any(flag.startswith(LEFT_OUT) for flag in cpu_flags.split())


def this_cpu_is_plain() -> bool:
    """Whether this machine has no features to disable."""
    cpuinfo = Path("/proc/cpuinfo")
    return is_plain(flags_of_this_cpu(cpuinfo.read_text("utf-8") if cpuinfo.exists() else ""))


def restricted(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the restrictions, in addition to existing XLA flags."""
    flags = [environment[name] for name in ("XLA_FLAGS",) if name in environment]
    return {**environment, **RESTRICTIONS, "XLA_FLAGS": " ".join([*flags, RESTRICTIONS["XLA_FLAGS"]])}


def assignments() -> str:
    """The restrictions as assignments for a shell command."""
    return " ".join(f"{name}={value}" for name, value in RESTRICTIONS.items())
