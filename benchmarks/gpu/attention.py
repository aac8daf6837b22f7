"""Attention by cuDNN's kernels, beside the matrix of scores."""

from __future__ import annotations

from tests.gpu.attention_check import check_cudnn_attention


def check_attention(*, is_virtual: bool) -> str:
    """Compares each kind of attention that cuDNN has a kernel for, and returns what was found.

    Raises AssertionError where results differ by more than the rounding of bfloat16.
    """
    if is_virtual:
        return "skipped, since a virtual GPU has no kernels of cuDNN's"
    return "; ".join(check_cudnn_attention())
