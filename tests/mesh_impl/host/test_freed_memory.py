"""Whether glibc keeps what was freed, in page faults of processes that take and free the same again and again; and
hands it back when a large program is called first."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

import meshtf as mtf
from meshtf.errors import UsageError
from tests.fresh_process import run_fresh

FAULTS = """
import ctypes, os, resource, sys
import meshtf as mtf

def faults(keeps):
    mtf.SpmdMeshImpl("all:1", "", keep_freed_memory=keeps)
    c = ctypes.CDLL(None)
    c.malloc.restype, c.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    for number in range(4):
        if number == 2:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        blocks = [c.malloc(48 << 20) for _ in range(2)]
        for block in blocks:
            ctypes.memset(block, 1, 48 << 20)
        for block in blocks:
            c.free(ctypes.c_void_p(block))
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

for keeps, name in (False, ""), (True, "MALLOC_TOP_PAD_"), (True, ""):
    child = os.fork()
    if child == 0:
        if name:
            os.environ[name] = "1"
        print(faults(keeps), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
PAGES = 2 * 2 * (48 << 20) // (4 << 10)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is of glibc")
def test_memory_is_taken_from_the_kernel_once() -> None:
    done = run_fresh(["-c", FAULTS])
    assert done.status == 0, done.stderr
    as_it_was, as_the_user_says, kept = map(int, done.stdout.split())
    assert kept < PAGES / 100 < as_it_was
    assert kept < as_the_user_says


POOL = """
import os, resource, sys
import meshtf as mtf
import tensorflow as tf

step = mtf.function(
    lambda x: mtf.reduce_sum(mtf.exp(mtf.exp(x)) * mtf.exp(x)),
    mtf.SpmdMeshImpl("all:1", "", keep_freed_memory=sys.argv[1] == "kept"),
    inputs={"x": mtf.TensorSpec("a:3072 b:4096")},
)
x = tf.zeros([3072, 4096])
for number in range(4):
    if number == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step(x=x).numpy()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, sorted(n for n in os.environ if "BFC" in n))
"""
MAPPED = 2 * 2 * (48 << 20) // (4 << 10)
"""Pages of two tensors in each of two steps, which malloc maps anew, as it does from 32 MiB on."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="is of glibc")
@pytest.mark.parametrize(
    ("which", "environment", "is_kept"),
    [
        ("kept", {}, True),
        pytest.param("kept", {"TF_CPU_ALLOCATOR_USE_BFC": "0"}, False, marks=pytest.mark.long),
        pytest.param("declined", {}, False, marks=pytest.mark.long),
    ],
)
def test_without_onednn_s_kernels_tensorflow_starts_with_a_pool(
    which: str, environment: dict[str, str], is_kept: bool
) -> None:
    """TensorFlow reads the environment as it is imported, so that no process forked from one that has will do."""
    done = subprocess.run(
        [sys.executable, "-c", POOL, which],
        env={**os.environ, "TF_ENABLE_ONEDNN_OPTS": "0", **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    faults, _, left = done.stdout.strip().partition(" ")
    assert (int(faults) < MAPPED / 100) == is_kept
    assert left == str(sorted(name for name in environment if "BFC" in name))


def test_it_is_a_flag() -> None:
    with pytest.raises(UsageError, match="keep_freed_memory must be True or False, and is 1"):
        mtf.MeshOptions(keep_freed_memory=1)  # type: ignore[arg-type]
