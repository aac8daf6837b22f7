"""Attention over named dimensions: projections, masks, positions, five ways to attend, and a cache for decoding.

Dimensions go by their names: `length` of the queries, `memory_length` of what they attend to, `heads` (with grouped
queries also `queries_per_head`), `d_kv` of keys and values. Any of them may be split, and others may be beside them.
"""

from __future__ import annotations

from meshtf.errors import unknown_name
from meshtf.layers.attention.beam_slots import BeamSlots
from meshtf.layers.attention.cache import KeyValueCache
from meshtf.layers.attention.config import (
    AttentionConfig,
    AttentionInitializers,
    QueryKeyNorm,
    t5_attention_initializers,
)
from meshtf.layers.attention.dot_product import dot_product_attention
from meshtf.layers.attention.lean import lean_attention
from meshtf.layers.attention.linear_bias import LinearBias
from meshtf.layers.attention.local import local_attention
from meshtf.layers.attention.mask import AttentionMask
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern, PositionBias
from meshtf.layers.attention.positions import learned_positions, rotary_embedding, sinusoidal_positions
from meshtf.layers.attention.projections import project_keys_and_values, project_output, project_queries
from meshtf.layers.attention.relative_position_bias import RelativePositionBias, relative_position_bucket
from meshtf.layers.attention.ring import ring_attention
from meshtf.layers.attention.rotary_scaling import (
    DynamicRotaryScaling,
    LinearRotaryScaling,
    Llama3RotaryScaling,
    LongRopeRotaryScaling,
    RotaryScaling,
    ScalingByLength,
    YarnRotaryScaling,
)
from meshtf.layers.attention.tokens import Tokens

__all__ = [
    "AttentionConfig",
    "AttentionInitializers",
    "AttentionMask",
    "AttentionOptions",
    "AttentionPattern",
    "BeamSlots",
    "DynamicRotaryScaling",
    "KeyValueCache",
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
    "project_output",
    "project_queries",
    "relative_position_bucket",
    "ring_attention",
    "rotary_embedding",
    "sinusoidal_positions",
    "t5_attention_initializers",
]

__getattr__ = unknown_name(__name__, __all__)
