"""Transformers as settings: sublayers, the residual connections around them, and stacks of layers.

All are gin configurables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.layers.transformer.attention import CrossAttention, Rotary, SelfAttention
from meshtf.layers.transformer.chained_stacks import ChainedStacks
from meshtf.layers.transformer.context import Context, DecodingSpace, Memory
from meshtf.layers.transformer.embedding import (
    LearnedPositions,
    PositionEmbedding,
    SinusoidalPositions,
    TokenEmbedding,
)
from meshtf.layers.transformer.feed_forward import FeedForward
from meshtf.layers.transformer.initializers import ResidualInitializer
from meshtf.layers.transformer.latent_attention import LatentAttention
from meshtf.layers.transformer.norms import LayerNorm, Norm, RmsNorm
from meshtf.layers.transformer.observations import AUXILIARY_LOSS, Observations
from meshtf.layers.transformer.stack import DistanceBias, RelativeBias, Residual, StackBias, TransformerStack
from meshtf.layers.transformer.sublayer import ObservedSublayer, Sublayer
from meshtf.layers.transformer.token_loss import TokenLoss

__all__ = [
    "AUXILIARY_LOSS",
    "ChainedStacks",
    "Context",
    "CrossAttention",
    "DecodingSpace",
    "DistanceBias",
    "FeedForward",
    "LatentAttention",
    "LayerNorm",
    "LearnedPositions",
    "Memory",
    "Norm",
    "Observations",
    "ObservedSublayer",
    "PositionEmbedding",
    "RelativeBias",
    "Residual",
    "ResidualInitializer",
    "RmsNorm",
    "Rotary",
    "SelfAttention",
    "SinusoidalPositions",
    "StackBias",
    "Sublayer",
    "TokenEmbedding",
    "TokenLoss",
    "TransformerStack",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
