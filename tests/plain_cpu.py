"""Runs tests as a CPU without AVX-512 would: `python -m tests.plain_cpu <pytest's arguments>`.

The libraries choose their kernels when they start, so it takes processes of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

RESTRICTIONS = {
    "TF_ENABLE_ONEDNN_OPTS": "0",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
}
"""What TensorFlow, oneDNN and XLA's compiler read.

TensorFlow turns oneDNN on only where the CPU has AVX-512 VNNI or bfloat16, AVX-VNNI or AMX; its own kernels take
float32 products from oneDNN all the same.
"""


def is_plain(cpu_flags: str) -> bool:
    """Whether a CPU with these flags, as /proc/cpuinfo lists them, has nothing that the restrictions leave out."""
    return not any(flag.startswith(("avx512", "amx", "avx10", "avx_vnni")) for flag in cpu_flags.split())


def flags_of_this_cpu(cpuinfo: str) -> str:
    """Of the first processor in the text of /proc/cpuinfo; none on another architecture, which has no AVX-512."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value for name, _, value in lines if name.strip() == "flags"), "")


def restricted(environment: dict[str, str]) -> dict[str, str]:
    """The environment with the restrictions, beside XLA flags that are there."""
    flags = [environment[name] for name in ("XLA_FLAGS",) if name in environment]
    return {**environment, **RESTRICTIONS, "XLA_FLAGS": " ".join([*flags, RESTRICTIONS["XLA_FLAGS"]])}


def main(arguments: Sequence[str]) -> int:
    """Pytest's exit status; 0 where there is nothing to leave out."""
    cpuinfo = Path("/proc/cpuinfo")
    if is_plain(flags_of_this_cpu(cpuinfo.read_text() if cpuinfo.exists() else "")):
        print("plain CPU: this machine has no AVX-512; the tests above have run on its AVX2 kernels")
        return 0
    print("plain CPU: again with", " ".join(f"{name}={value}" for name, value in RESTRICTIONS.items()), flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=restricted(dict(os.environ)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
