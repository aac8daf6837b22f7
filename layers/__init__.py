"""Layers, written only with the public language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.layers.activations import Activation, activation_function, activation_names
from meshtf.layers.attention import (
    AttentionConfig,
    AttentionInitializers,
    AttentionMask,
    AttentionOptions,
    AttentionPattern,
    BeamSlots,
    DynamicRotaryScaling,
    KeyValueCache,
    LinearBias,
    LinearRotaryScaling,
    Llama3RotaryScaling,
    LongRopeRotaryScaling,
    PositionBias,
    QueryKeyNorm,
    RelativePositionBias,
    RotaryScaling,
    ScalingByLength,
    Tokens,
    YarnRotaryScaling,
    dot_product_attention,
    lean_attention,
    learned_positions,
    local_attention,
    project_keys_and_values,
    project_output,
    project_queries,
    relative_position_bucket,
    ring_attention,
    rotary_embedding,
    sinusoidal_positions,
    t5_attention_initializers,
)
from meshtf.layers.convolution import (
    conv1d,
    conv2d,
    conv2d_transpose,
    conv3d,
    conv3d_transpose,
    separable_conv1d,
)
from meshtf.layers.dense import dense, dense_product
from meshtf.layers.embedding import (
    MASKED_LOGIT,
    VocabularyEmbedding,
    embedding,
    embedding_weights,
    mask_padded_logits,
    padded_vocab_size,
)
from meshtf.layers.feed_forward import dense_relu_dense, feed_forward
from meshtf.layers.initializers import (
    DenseInitializer,
    Initializer,
    NormalInitializer,
    TruncatedNormalInitializer,
    VarianceScalingInitializer,
    ZerosInitializer,
)
from meshtf.layers.losses import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits,
    weights_nonzero,
)
from meshtf.layers.low_rank import LowRank, low_rank_product
from meshtf.layers.normalization import batch_norm, layer_norm, rms_norm
from meshtf.layers.pipeline import pipeline, pipeline_with_sums
from meshtf.layers.pipeline_schedule import PipelineSchedule

__all__ = [
    "MASKED_LOGIT",
    "Activation",
    "AttentionConfig",
    "AttentionInitializers",
    "AttentionMask",
    "AttentionOptions",
    "AttentionPattern",
    "BeamSlots",
    "DenseInitializer",
    "DynamicRotaryScaling",
    "Initializer",
    "KeyValueCache",
    "LinearBias",
    "LinearRotaryScaling",
    "Llama3RotaryScaling",
    "LongRopeRotaryScaling",
    "LowRank",
    "NormalInitializer",
    "PipelineSchedule",
    "PositionBias",
    "QueryKeyNorm",
    "RelativePositionBias",
    "RotaryScaling",
    "ScalingByLength",
    "Tokens",
    "TruncatedNormalInitializer",
    "VarianceScalingInitializer",
    "VocabularyEmbedding",
    "YarnRotaryScaling",
    "ZerosInitializer",
    "activation_function",
    "activation_names",
    "batch_norm",
    "conv1d",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "dense",
    "dense_product",
    "dense_relu_dense",
    "dot_product_attention",
    "embedding",
    "embedding_weights",
    "feed_forward",
    "layer_norm",
    "lean_attention",
    "learned_positions",
    "local_attention",
    "low_rank_product",
    "mask_padded_logits",
    "padded_vocab_size",
    "pipeline",
    "pipeline_with_sums",
    "project_keys_and_values",
    "project_output",
    "project_queries",
    "relative_position_bucket",
    "ring_attention",
    "rms_norm",
    "rotary_embedding",
    "separable_conv1d",
    "sigmoid_cross_entropy_with_logits",
    "sinusoidal_positions",
    "softmax_cross_entropy_with_logits",
    "t5_attention_initializers",
    "weights_nonzero",
]

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
