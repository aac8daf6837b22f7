"""Models that are given float32 compute in the dtype of activations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention import AttentionConfig
from meshtf.layers.transformer import FeedForward, SelfAttention, TransformerStack
from meshtf.models import DLRM, SSD, AmoebaNetD, DefaultBoxes, MLPClassifier, ResNet, UNet, VisionTransformer

SMALL_RESNET = ResNet(3, (1,), 4, block="basic", stem="plain")
STACK = TransformerStack([SelfAttention(AttentionConfig(2, 4)), FeedForward(8)], 1)
DETECTOR = SSD(3, SMALL_RESNET, DefaultBoxes(8, (1, 2), (3, 4, 5), ((), ())), ((4, 4, 2),))
Run = Callable[[mtf.Tensor], object]

MODELS: dict[str, Run] = {
    "resnet": lambda images: SMALL_RESNET.logits(images, True),
    "amoeba_net": lambda images: AmoebaNetD(3, 9, 4, stem="plain").logits(images, True),
    "unet": lambda images: UNet(3, 4, 2, batch_norm=True).logits(images, True),
    "vit": lambda images: VisionTransformer(3, 8, 4, STACK).logits(images, True),
    "ssd": lambda images: DETECTOR.outputs(images, True),
    "mlp": lambda images: MLPClassifier(3).logits(images.reshape("batch:2 pixels:192")),
    "dlrm": lambda images: DLRM((9, 5), bottom_sizes=(6,), top_sizes=(8,)).logits(
        {
            "numbers": images.reshape("batch:2 numbers:192"),
            "ids": mtf.zeros(images.mesh, "batch:2 tables:2 bag:1", tf.int32),
        }
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_products_are_of_activations_and_statistics_are_wide(name: str) -> None:
    graph = mtf.Graph(variable_dtype=mtf.VariableDType(tf.float32, activation_dtype=tf.bfloat16))
    with graph:
        MODELS[name](mtf.zeros(mtf.Mesh(graph), "batch:2 height:8 width:8 channels:3"))
    kinds = ("conv2d", "convolution", "einsum")
    products = [o for o in graph.operations if o.name.rpartition("/")[2].rstrip("_0123456789") in kinds]
    assert products
    assert {o.outputs[0].dtype for o in products} == {tf.bfloat16}
    averages = [v.dtype.activation_dtype for v in graph.variables.values() if v.full_name.endswith("moving_variance")]
    assert {*averages} <= {tf.float32}
    assert bool(averages) == (name in ("resnet", "amoeba_net", "unet", "ssd"))
