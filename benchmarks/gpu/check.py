"""Runs all checks that need a GPU, in at most six minutes: `make gpu-check`.

    python -m benchmarks.gpu.check
    python -m benchmarks.gpu.check --only=operations,memory
    python -m benchmarks.gpu.check --virtual=1

Each part prints its result in one line. If a part fails, its error is printed, the others still run, and the exit
status is 1. Without a GPU nothing runs, each part is reported as skipped, and the exit status is 0. With `--virtual`
the same parts run at tiny sizes on a virtual GPU, on this machine's processors.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.gpu.attention import check_cudnn_attention
from benchmarks.gpu.memory_beside_plan import check_memory
from benchmarks.gpu.sample_operations import check_operations
from benchmarks.gpu.this_gpu import card_name, why_no_gpu
from benchmarks.gpu.whole_programs import Programs

Part = Callable[[Programs], str]
"""Runs a part, and returns a line with its result. Raises an error if something is wrong."""


def _attention(programs: Programs) -> str:
    if programs.virtual is not None:
        return "skipped, since a virtual GPU has no kernels of cuDNN's"
    return "; ".join(check_cudnn_attention())


PARTS: Mapping[str, Part] = {
    "operations": lambda programs: check_operations(),
    "attention": _attention,
    "memory": lambda programs: check_memory(is_tiny=programs.virtual is not None),
    "digits": Programs.check_digits,
    "lm_tiny": Programs.check_lm_tiny,
    "checkpoints": Programs.check_checkpoints,
}


def main() -> int:
    """Runs the requested parts, and returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    parser.add_argument("--virtual", type=int, help="the number of virtual GPUs; without, real ones")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in PARTS]:
        parser.error(f"there is no part {unknown[0]!r}; the parts are {', '.join(PARTS)}")
    # This process keeps the GPU open while the programs that it starts use it, too.
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    why = why_no_gpu(arguments.virtual)
    if why is not None:
        print(why)
        print("\n".join(f"{name}: skipped, since there is no GPU" for name in names))
        return 0
    print(card_name(arguments.virtual), flush=True)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        programs = Programs(Path(folder), arguments.virtual)
        done = [told(name, PARTS[name], programs) for name in names]
    print(f"{sum(done)} of {len(done)} parts are right, in {time.perf_counter() - began:.0f} s")
    return 0 if all(done) else 1


def told(name: str, part: Part, programs: Programs) -> bool:
    """Runs a part, prints its result, and returns whether it passed."""
    began = time.perf_counter()
    try:
        found = part(programs)
    except Exception:
        print(f"{name}: FAILED after {time.perf_counter() - began:.0f} s\n{traceback.format_exc()}", flush=True)
        return False
    print(f"{name}: {found} ({time.perf_counter() - began:.0f} s)", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
