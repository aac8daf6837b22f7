"""What becomes of memory that a step has freed: it is kept for the next step, rather than handed back."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator

import tensorflow as tf

from meshtf.tensorflow_private.onednn_operations import is_onednn_on

_POOL, _POOL_MIB = "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB"
"""What TensorFlow reads when it makes its first processor. Its own limit is 64 GiB."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # numbers of malloc.h
_SETTINGS = {_MMAP_THRESHOLD: (1 << 30, 32 << 20), _TRIM_THRESHOLD: (1 << 30,), _TOP_PAD: (64 << 20,)}
"""In bytes, the first that glibc takes: before 2.36 a threshold of mmap is at most 32 MiB."""

_OF_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


@contextlib.contextmanager
def pool_of_processors(*, is_wanted: bool = True) -> Iterator[None]:
    """If TensorFlow makes its processors inside, tensors on them are kept in a pool of its own (`BFCAllocator`), which
    hands nothing back to the system.

    With oneDNN's kernels it has one anyway. Without, a step of a Transformer of width 1,024 on one core had 110,000
    page faults by malloc, which keeps no block above 32 MiB, took a tenth longer, and the process needed 300 MiB more.

    It holds for the process and cannot be undone. Nothing is done if it is not wanted, where there are GPUs, or where
    the environment says which memory TensorFlow is to take (`TF_CPU_ALLOCATOR_USE_BFC`), or how glibc is to allocate.
    """
    is_left_alone = not is_wanted or _POOL in os.environ or _user_sets_malloc() or is_onednn_on()
    if is_left_alone or tf.config.list_physical_devices("GPU"):
        yield
        return
    settings = {_POOL: "1", _POOL_MIB: str(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20)}
    added = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@functools.cache
def keep_freed_memory() -> bool:
    """From now on glibc's malloc keeps up to a gibibyte that this process has freed; returns whether it does.

    A step frees what it took, and the next one takes as much. By default glibc maps large blocks anew each time, and
    the kernel clears every page of them: 22,000 page faults a step of a small Transformer on one core, and 500 with
    this, on a processor for which TensorFlow has no pool.

    It holds for the process, for everything in it that calls malloc, and cannot be undone. Nothing is done where the
    environment says how glibc is to allocate, or where there is no glibc.
    """
    if not sys.platform.startswith("linux") or _user_sets_malloc():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(any(mallopt(parameter, size) for size in sizes) for parameter, sizes in _SETTINGS.items())


def _user_sets_malloc() -> bool:
    return any(name in os.environ for name in _OF_USER) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")


def hand_back_freed_memory() -> None:
    """What glibc has kept until now goes back to the system: what is made once leaves more behind than steps use."""
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
