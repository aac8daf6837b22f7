"""With which instructions oneDNN computes in this process."""

from __future__ import annotations

import functools
import os
import pathlib


@functools.cache
def multiplies_by_avx2() -> bool:
    """Whether oneDNN multiplies matrices of float32, which it does for TensorFlow's own kernels too, by AVX2 and not by
    AVX-512. It goes by the processor, and by an environment variable of oneDNN's, as it starts; so the answer is the
    same ever after. False where nothing says what the processor has.
    """
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", os.environ.get("DNNL_MAX_CPU_ISA", "")).upper()
    instructions = _instructions()
    has_avx512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= instructions and not limit.startswith("AVX2")
    return {"avx2", "fma"} <= instructions and not has_avx512 and limit not in ("SSE41", "AVX")


def _instructions() -> frozenset[str]:
    """Sets of instructions of this machine's first processor, as Linux calls them."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())
