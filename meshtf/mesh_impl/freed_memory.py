"""What glibc does with memory that a step has freed: it is kept for the next step, rather than handed back."""

from __future__ import annotations

import ctypes
import functools
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # numbers of malloc.h
_SETTINGS = {_MMAP_THRESHOLD: (1 << 30, 32 << 20), _TRIM_THRESHOLD: (1 << 30,), _TOP_PAD: (64 << 20,)}
"""In bytes, the first that glibc takes: before 2.36 a threshold of mmap is at most 32 MiB."""

_OF_USER = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")


@functools.cache
def keep_freed_memory() -> bool:
    """From now on glibc's malloc keeps up to a gibibyte that this process has freed; returns whether it does.

    A step frees what it took, and the next one takes as much. By default glibc maps large blocks anew each time, and
    the kernel clears every page of them: 22,000 page faults a step of a small Transformer on one core, and 500 with
    this, on a processor for which TensorFlow has no pool of its own.

    It holds for the process, for everything in it that calls malloc, and cannot be undone. Nothing is done where the
    environment says how glibc is to allocate, or where there is no glibc.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _OF_USER):
        return False
    if "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", ""):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(any(mallopt(parameter, size) for size in sizes) for parameter, sizes in _SETTINGS.items())


def hand_back_freed_memory() -> None:
    """What glibc has kept until now goes back to the system: what is made once leaves more behind than steps use."""
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).malloc_trim(0)
