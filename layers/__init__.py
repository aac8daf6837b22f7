"""Layers, written only with the public language."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.errors import unknown_name
from meshtf.layers import attention, convolution, losses, normalization
from meshtf.layers.activations import Activation, ClampedLinear, ClampedSwish, activation_function, activation_names
from meshtf.layers.attention import *
from meshtf.layers.convolution import *
from meshtf.layers.dense import dense, dense_product
from meshtf.layers.embedding import (
    MASKED_LOGIT,
    VocabularyEmbedding,
    embedding,
    embedding_weights,
    mask_padded_logits,
    padded_vocab_size,
)
from meshtf.layers.embedding_tables import EmbeddingTables
from meshtf.layers.feed_forward import dense_relu_dense, feed_forward
from meshtf.layers.initializers import (
    DenseInitializer,
    Initializer,
    NormalInitializer,
    TruncatedNormalInitializer,
    VarianceScalingInitializer,
    ZerosInitializer,
)
from meshtf.layers.losses import *
from meshtf.layers.low_rank import LowRank, low_rank_product
from meshtf.layers.normalization import *
from meshtf.layers.pipeline import pipeline, pipeline_with_sums
from meshtf.layers.pipeline_schedule import PipelineSchedule
from meshtf.layers.pooling import adaptive_avg_pool, adaptive_max_pool
from meshtf.layers.ranking import area_under_curve
from meshtf.layers.recurrent import bidirectional, gru, lstm

__all__ = [
    "MASKED_LOGIT",
    "Activation",
    "ClampedLinear",
    "ClampedSwish",
    "DenseInitializer",
    "EmbeddingTables",
    "Initializer",
    "LowRank",
    "NormalInitializer",
    "PipelineSchedule",
    "TruncatedNormalInitializer",
    "VarianceScalingInitializer",
    "VocabularyEmbedding",
    "ZerosInitializer",
    "activation_function",
    "activation_names",
    "adaptive_avg_pool",
    "adaptive_max_pool",
    "area_under_curve",
    "bidirectional",
    "dense",
    "dense_product",
    "dense_relu_dense",
    "embedding",
    "embedding_weights",
    "feed_forward",
    "gru",
    "low_rank_product",
    "lstm",
    "mask_padded_logits",
    "padded_vocab_size",
    "pipeline",
    "pipeline_with_sums",
]
__all__ += attention.__all__
__all__ += convolution.__all__
__all__ += losses.__all__
__all__ += normalization.__all__

if not TYPE_CHECKING:  # a type checker that saw it would accept every name
    __getattr__ = unknown_name(__name__, __all__)
