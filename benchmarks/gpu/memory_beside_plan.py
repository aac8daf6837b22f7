"""Compares the peak memory of GPT-2's step on a GPU with the plan's."""

from __future__ import annotations

import meshtf as mtf
from benchmarks.gpu.steps import Gpt2, tiny_gpt2


def check_memory(*, is_tiny: bool) -> str:
    """Runs one step, and returns text with the peak that the device counted and the plan's, which knows no fusion.

    Raises:
      AssertionError: the device held more than 1.25 times the plan's peak.
    """
    mesh_impl = mtf.GpuMeshImpl("all:1", "")
    step, feeds = (tiny_gpt2() if is_tiny else Gpt2(8)).made(mesh_impl)
    loss = float(step(**feeds)["loss"])
    assert loss == loss, "the loss is NaN"
    planned, seen = step.report().memory.peak, mesh_impl.peak_bytes
    if seen is None:
        return f"the plan has {planned / 2**20:,.1f} MiB, and virtual GPUs do not count theirs"
    assert seen < 1.25 * planned, f"the GPU held {seen:,} bytes, and the plan has {planned:,}"
    return f"the plan has {planned / 2**20:,.1f} MiB, and the GPU held {seen / 2**20:,.1f} ({seen / planned:.2f})"
