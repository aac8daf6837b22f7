"""Runs tests as a CPU without AVX-512 would: `python -m tests.plain_cpu <pytest's arguments>`.

The libraries choose their kernels when they start, so it takes processes of its own. What restricts them is in
`benchmarks/measuring/plain_cpu.py`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from benchmarks.measuring.plain_cpu import assignments, restricted, this_cpu_is_plain


def main(arguments: Sequence[str]) -> int:
    """Pytest's exit status; 0 where there is nothing to leave out."""
    if this_cpu_is_plain():
        print("plain CPU: this machine has no AVX-512; the tests above have run on its AVX2 kernels")
        return 0
    print("plain CPU: again with", assignments(), flush=True)
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(command, env=restricted(dict(os.environ)), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
