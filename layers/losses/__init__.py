"""Losses, computed in float32, or in float64 for float64 operands. Each has a number for every example."""

from meshtf.layers.losses.contrastive import contrastive_loss, cosine_similarity
from meshtf.layers.losses.cross_entropy import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    weights_nonzero,
)
from meshtf.layers.losses.ctc import ctc_loss
from meshtf.layers.losses.divergence import kl_divergence
from meshtf.layers.losses.regression import hinge_loss, huber_loss

__all__ = [
    "contrastive_loss",
    "cosine_similarity",
    "ctc_loss",
    "hinge_loss",
    "huber_loss",
    "kl_divergence",
    "sigmoid_cross_entropy_with_logits",
    "softmax_cross_entropy_with_logits",
    "weights_nonzero",
]
