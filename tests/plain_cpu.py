"""Runs tests as a CPU without AVX-512 would: `python -m tests.plain_cpu <pytest's arguments>`.

The libraries choose their kernels when they start, so it takes processes of its own. What restricts them is in
`benchmarks/plain_cpu.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.plain_cpu import assignments, restricted


def is_plain(cpu_flags: str) -> bool:
    """Whether a CPU with these flags, as /proc/cpuinfo lists them, has nothing that the restrictions leave out."""
    return not any(flag.startswith(("avx512", "amx", "avx10", "avx_vnni")) for flag in cpu_flags.split())


def flags_of_this_cpu(cpuinfo: str) -> str:
    """Of the first processor in the text of /proc/cpuinfo; none on another architecture, which has no AVX-512."""
    lines = (line.partition(":") for line in cpuinfo.splitlines())
    return next((value for name, _, value in lines if name.strip() == "flags"), "")


def main(arguments: Sequence[str]) -> int:
    """Pytest's exit status; 0 where there is nothing to leave out."""
    cpuinfo = Path("/proc/cpuinfo")
    if is_plain(flags_of_this_cpu(cpuinfo.read_text() if cpuinfo.exists() else "")):
        print("plain CPU: this machine has no AVX-512; the tests above have run on its AVX2 kernels")
        return 0
    print("plain CPU: again with", assignments(), flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=restricted(dict(os.environ)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
