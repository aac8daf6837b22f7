"""Attention that never holds the whole matrix of scores, nor computes the half that a causal mask hides."""

from __future__ import annotations

from meshtf.layers.attention.lean.lean_attention import attends_in_blocks, lean_attention

__all__ = ["attends_in_blocks", "lean_attention"]
