"""A batch without a feature that a model needs is told in a sentence, whatever the model."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.layers.transformer import FeedForward, TransformerStack
from meshtf.models import DLRM, SSD, MLPClassifier, ResNet, UNet, VisionTransformer

IMAGES = "batch:2 height:8 width:8 channels:3"
STACK = TransformerStack([FeedForward(4)], 1, use_final_norm=False)
RESNET = ResNet(2, (1,), 4)
OF_CLASSES = {"images": (IMAGES, tf.float32), "labels": ("batch:2", tf.int32)}


@pytest.mark.parametrize(
    ("model", "features"),
    [
        (RESNET, OF_CLASSES),
        (VisionTransformer(2, 4, 4, STACK), OF_CLASSES),
        (MLPClassifier(2), {"images": ("batch:2 pixels:3", tf.float32), "labels": ("batch:2", tf.int32)}),
        (UNet(2, 4, 2), {"images": (IMAGES, tf.float32), "labels": ("batch:2 height:8 width:8", tf.int32)}),
        (SSD(2, RESNET), {"images": (IMAGES, tf.float32)}),
        (
            DLRM((4, 4), 4, (4,), (4,)),
            {
                "ids": ("batch:2 tables:2 bag:1", tf.int32),
                "numbers": ("batch:2 numbers:3", tf.float32),
                "labels": ("batch:2", tf.int32),
            },
        ),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_feature_that_is_not_there(model: Any, features: dict[str, tuple[str, tf.DType]]) -> None:
    for missing in features:
        with mtf.Graph() as graph:
            mesh = mtf.Mesh(graph)
            given = {name: mtf.zeros(mesh, *spec) for name, spec in features.items()}
            given[f"{missing}s"] = given.pop(missing)
            with pytest.raises(GraphError, match=f'needs a feature "{missing}", but .*did you mean "{missing}s"'):
                model.metrics(given, True)
