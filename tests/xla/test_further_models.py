"""Images, experts and stages on eight replicas: ten training steps, against one core."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
from agreement import OneCore

import meshtf as mtf
from meshtf.layers import PipelineSchedule
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.embedding import VocabularyEmbedding
from meshtf.layers.moe import Capacity, MixtureOfExperts
from meshtf.layers.transformer import FeedForward, SelfAttention, TokenEmbedding, TransformerStack
from meshtf.models import ResNet50, TransformerLM

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

STEPS = 10
IMAGES = mtf.convert_to_shape("batch:8;height:16;width:16;channels:3")
TOKENS = mtf.convert_to_shape("batch:8;length:8")
RESNET_LAYOUTS = ["batch:rows+cols", "height:rows", "batch:cols;height:rows", "filters:cols", "batch:rows;filters:cols"]
EXPERT_LAYOUTS = [
    "batch:rows+cols;experts:rows",
    "batch:rows;experts:rows;d_ff:cols",
    "batch:cols;experts:cols;heads:rows",
    "batch:rows;heads:cols;d_ff:cols;vocab:cols",
    "d_model:rows;experts:cols",
]
STAGE_LAYOUTS = [
    "stage:rows",
    "stage:rows;batch:cols",
    "stage:rows;heads:cols;d_ff:cols",
    "stage:cols;batch:rows",
    "batch:cols;d_model:rows",
]


def resnet_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    model = ResNet50(num_classes=4, stage_sizes=(1, 1), width=4, batch_norm_epsilon=1e-3)
    loss = mtf.reduce_mean(model.metrics({"images": images, "labels": labels}, True)["loss"])
    mtf.optimize.SgdOptimizer(0.1).minimize(loss)
    return loss


def text_step(stack: TransformerStack) -> Callable[[mtf.Tensor], mtf.Tensor]:
    model = TransformerLM(16, TokenEmbedding(VocabularyEmbedding(50, 8)), stack)

    def text_step(targets: mtf.Tensor) -> mtf.Tensor:
        values, weights = model.metrics({"targets": targets}, True)["loss"]
        loss = mtf.reduce_sum(values * weights) / mtf.reduce_sum(weights)
        mtf.optimize.SgdOptimizer(0.1).minimize(loss)
        return loss

    return text_step


def self_attention() -> SelfAttention:
    return SelfAttention(AttentionConfig(4, 4))


@functools.cache
def images() -> OneCore:
    generator = np.random.default_rng(0)
    specs = {"images": mtf.TensorSpec(IMAGES), "labels": mtf.TensorSpec(IMAGES[:1], tf.int32)}
    batches = [
        {
            "images": generator.normal(size=IMAGES.to_integer_list).astype(np.float32),
            "labels": generator.integers(0, 4, 8).astype(np.int32),
        }
        for _ in range(STEPS)
    ]
    return OneCore.of(resnet_step, specs, batches)


def stacked_step(kind: str) -> Callable[[mtf.Tensor], mtf.Tensor]:
    """Of a Transformer with "experts", or with "stages" of a pipeline."""
    if kind == "experts":
        experts = [self_attention(), MixtureOfExperts(4, 16, capacity=Capacity(2.0))]
        return text_step(TransformerStack(experts, 2))
    pipeline = PipelineSchedule(num_stages=4, num_microbatches=2)
    return text_step(TransformerStack([self_attention(), FeedForward(16)], 4, pipeline=pipeline))


@functools.cache
def texts(kind: str) -> OneCore:
    generator = np.random.default_rng(0)
    ids = [generator.integers(2, 50, TOKENS.to_integer_list).astype(np.int32) for _ in range(STEPS)]
    specs = {"targets": mtf.TensorSpec(TOKENS, tf.int32)}
    return OneCore.of(stacked_step(kind), specs, [{"targets": x} for x in ids])


@pytest.mark.parametrize("layout", RESNET_LAYOUTS)
def test_residual_network(layout: str) -> None:
    images().check("rows:2;cols:4", layout)


@pytest.mark.parametrize("layout", EXPERT_LAYOUTS)
def test_mixture_of_experts(layout: str) -> None:
    texts("experts").check("rows:4;cols:2", layout)


@pytest.mark.parametrize("layout", STAGE_LAYOUTS)
def test_pipeline(layout: str) -> None:
    texts("stages").check("rows:4;cols:2" if "stage:rows" in layout else "rows:2;cols:4", layout)
