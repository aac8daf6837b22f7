"""Layers, written only with the public language."""

from __future__ import annotations

from meshtf.layers.dense import dense
from meshtf.layers.initializers import DenseInitializer, Initializer, VarianceScalingInitializer
from meshtf.layers.losses import softmax_cross_entropy_with_logits

__all__ = [
    "DenseInitializer",
    "Initializer",
    "VarianceScalingInitializer",
    "dense",
    "softmax_cross_entropy_with_logits",
]
