"""Keeps the memory that a step has freed for the next step, instead of returning it to the system."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import sys
from collections.abc import Iterator

import tensorflow as tf

_POOL, _POOL_MIB = "TF_CPU_ALLOCATOR_USE_BFC", "TF_CPU_BFC_MEM_LIMIT_IN_MB"
"""Environment variables that TensorFlow reads when it makes its first CPU device. Its default limit is 64 GiB."""
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # numbers of malloc.h
_SETTINGS = {_MMAP_THRESHOLD: (1 << 30, 32 << 20), _TRIM_THRESHOLD: (1 << 30,), _TOP_PAD: (64 << 20,)}
"""The sizes in bytes to try for each setting, until glibc accepts one. Before 2.36 it accepts at most 32 MiB as the
threshold of mmap."""

_OF_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


@contextlib.contextmanager
def pool_of_processors(*, is_wanted: bool = True) -> Iterator[None]:
    """Makes TensorFlow keep CPU tensors in a memory pool (`BFCAllocator`), if it makes its CPU devices in this context.

    The pool returns no memory to the system. With oneDNN's kernels TensorFlow always has a pool. Without them it calls
    malloc, which keeps no block above 32 MiB. A step of a Transformer of width 1,024 on one core then had 110,000 page
    faults and took a tenth longer, and the process needed 300 MiB more.

    The pool exists until the process ends. There is no pool if it is not wanted, if there are GPUs, or if the
    environment chooses TensorFlow's allocator (`TF_CPU_ALLOCATOR_USE_BFC`) or configures glibc's malloc.
    """
    is_left_alone = not is_wanted or _POOL in os.environ or _user_sets_malloc()
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
    """Lets glibc's malloc keep up to a gibibyte of freed memory, and returns whether it does.

    A step frees its memory, and the next step needs as much. By default glibc maps large blocks anew each time, and the
    kernel clears all their pages. On a processor for which TensorFlow has no pool, a step of a small Transformer on one
    core had 22,000 page faults by default, and 500 with this setting.

    The setting affects everything in the process that calls malloc, and cannot be undone. Nothing is set if the
    environment configures glibc's malloc, or if there is no glibc.
    """
    if not sys.platform.startswith("linux") or _user_sets_malloc():
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(any(mallopt(parameter, size) for size in sizes) for parameter, sizes in _SETTINGS.items())


def _user_sets_malloc() -> bool:
    return any(name in os.environ for name in _OF_USER) or "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
