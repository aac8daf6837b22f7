"""Attention over named dimensions: projections, masks, positions, six ways to attend, and a cache for decoding.

Dimensions have fixed names. `length` is that of the queries, and `memory_length` that of the tokens to which they
attend. `heads` counts heads (with grouped queries also `queries_per_head`), and `d_kv` is the size of a key or value. A
layout may split any of them, and tensors may have other dimensions as well.

All six ways compute the same means of values. They differ in what they hold and move:

    dot_product_attention    the whole matrix of scores
    lean_attention           one block of scores at a time, for long sequences
    fused_attention          what a platform's own kernel holds, on GPUs that have it (in the package `cudnn`)
    local_attention          scores within a window, for masks with a window
    ring_attention           keys and values go round the cores, for layouts that split `length`
    BeamSlots.attention      a beam search's caches, which stay in their places
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.layers.attention.caches.beam_slots import BeamSlots
from meshtf.layers.attention.caches.int8_cache import Int8KeyValueCache
from meshtf.layers.attention.caches.key_value_cache import KeyValueCache
from meshtf.layers.attention.caches.latent_cache import LatentCache
from meshtf.layers.attention.config import (
    AttentionConfig,
    AttentionInitializers,
    QueryKeyNorm,
    t5_attention_initializers,
)
from meshtf.layers.attention.dot_product import dot_product_attention
from meshtf.layers.attention.latent import LatentConfig, project_latent_queries, project_latents
from meshtf.layers.attention.lean import lean_attention
from meshtf.layers.attention.local import local_attention
from meshtf.layers.attention.mask import AttentionMask
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern, PositionBias
from meshtf.layers.attention.position_encodings.linear_bias import LinearBias
from meshtf.layers.attention.position_encodings.positions import (
    learned_positions,
    rotary_embedding,
    sinusoidal_positions,
)
from meshtf.layers.attention.position_encodings.relative_position_bias import (
    RelativePositionBias,
    relative_position_bucket,
)
from meshtf.layers.attention.position_encodings.rotary_scaling import (
    DynamicRotaryScaling,
    LinearRotaryScaling,
    Llama3RotaryScaling,
    LongRopeRotaryScaling,
    RotaryScaling,
    ScalingByLength,
    YarnRotaryScaling,
)
from meshtf.layers.attention.projections import project_keys_and_values, project_output, project_queries
from meshtf.layers.attention.ring import ring_attention
from meshtf.layers.attention.tokens import Tokens

__all__ = [
    "AttentionConfig",
    "AttentionInitializers",
    "AttentionMask",
    "AttentionOptions",
    "AttentionPattern",
    "BeamSlots",
    "DynamicRotaryScaling",
    "Int8KeyValueCache",
    "KeyValueCache",
    "LatentCache",
    "LatentConfig",
    "LinearBias",
    "LinearRotaryScaling",
    "Llama3RotaryScaling",
    "LongRopeRotaryScaling",
    "PositionBias",
    "QueryKeyNorm",
    "RelativePositionBias",
    "RotaryScaling",
    "ScalingByLength",
    "Tokens",
    "YarnRotaryScaling",
    "dot_product_attention",
    "lean_attention",
    "learned_positions",
    "local_attention",
    "project_keys_and_values",
    "project_latent_queries",
    "project_latents",
    "project_output",
    "project_queries",
    "relative_position_bucket",
    "ring_attention",
    "rotary_embedding",
    "sinusoidal_positions",
    "t5_attention_initializers",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
