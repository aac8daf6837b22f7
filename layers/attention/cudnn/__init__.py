"""Attention as one kernel: cuDNN's on GPUs, and its plain form everywhere else."""

from __future__ import annotations

from meshtf.layers.attention.cudnn.fused_attention import fused_attention, is_chosen_by_itself

__all__ = ["fused_attention", "is_chosen_by_itself"]
