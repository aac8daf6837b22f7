"""Every model takes labels as integers of any dtype, with the metrics of int32."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import VocabularyEmbedding
from meshtf.layers.transformer import FeedForward, TokenEmbedding, TransformerStack
from meshtf.models import SSD, DefaultBoxes, MLPClassifier, ResNet, TextClassifier, UNet
from meshtf.testing import interpret
from tests.models.transformers import case

IMAGES = "batch:2 height:12 width:12 channels:1"
RESNET = ResNet(12, stage_sizes=(1,), width=2, block="basic", stem="plain")
DETECTOR = SSD(
    12,
    ResNet(12, stage_sizes=(1, 1), stage_strides=(2, 2), width=2, block="basic", stem="plain"),
    DefaultBoxes(12, (4, 8), (4, 6, 8), ((), ())),
    ((2, 2, 2),),
    num_candidates=4,
    num_detections=3,
)
MODELS: dict[str, tuple[Any, dict[str, str]]] = {
    "MLPClassifier": (MLPClassifier(12, (4,)), {"images": "batch:2 pixels:3", "labels": "batch:2"}),
    "ResNet": (RESNET, {"images": IMAGES, "labels": "batch:2"}),
    "UNet": (UNet(12, 2, 2), {"images": IMAGES, "labels": "batch:2 height:12 width:12"}),
    "UNet without checks": (
        UNet(12, 2, 2, check_labels=False),
        {"images": IMAGES, "labels": "batch:2 height:12 width:12"},
    ),
    "SSD": (DETECTOR, {"images": IMAGES, "boxes": "batch:2 objects:2 coordinates:4", "labels": "batch:2 objects:2"}),
}


def evaluated(model: Any, specs: dict[str, str], dtype: str) -> list[np.ndarray]:
    """The metrics of an evaluation and of a training, with their weights."""
    random = np.random.default_rng(0)
    inputs = dict[str, tuple[str, np.ndarray]]()
    for name, shape in specs.items():
        sizes = mtf.convert_to_shape(shape).to_integer_list
        if name == "labels":
            inputs[name] = (shape, random.integers(1, 12, sizes).astype(dtype))
        elif name == "boxes":
            inputs[name] = (shape, np.array([[[0.0, 0.0, 0.5, 0.5], [0.3, 0.4, 0.9, 1.0]]] * 2, np.float32))
        else:
            inputs[name] = (shape, random.normal(size=sizes).astype(np.float32))

    def program(**features: mtf.Tensor) -> list[mtf.Tensor]:
        return tf.nest.flatten([model.metrics(features, is_training) for is_training in (False, True)])

    return interpret(program, inputs, "a:1").results


@pytest.mark.parametrize("name", MODELS)
def test_models_of_images(name: str) -> None:
    expected = evaluated(*MODELS[name], "int32")
    for dtype in ("int64", "uint8"):
        for found, value in zip(evaluated(*MODELS[name], dtype), expected, strict=True):
            np.testing.assert_array_equal(found, value, dtype)


TEXTS = TextClassifier(4, TokenEmbedding(VocabularyEmbedding(8)), TransformerStack([FeedForward(4)], 1), 12)


@pytest.mark.parametrize(
    ("model", "given"),
    [
        (MLPClassifier(12, (4,)), ("images", "batch:2 pixels:3")),
        (UNet(12, 2, 2), ("images", IMAGES)),
        (UNet(12, 2, 2, check_labels=False), ("images", IMAGES)),
        (TEXTS, ("inputs", "batch:2 length:3")),
    ],
    ids=lambda x: type(x).__name__,
)
def test_a_distribution_that_is_sure_has_the_metrics_of_its_class(model: Any, given: tuple[str, str]) -> None:
    random, (name, shape) = np.random.default_rng(0), given
    of_labels = "batch:2 height:12 width:12" if isinstance(model, UNet) else "batch:2"
    labels = random.integers(0, 12, mtf.convert_to_shape(of_labels).to_integer_list).astype(np.int32)
    values = random.integers(0, 8, mtf.convert_to_shape(shape).to_integer_list).astype(np.int32)

    def program(x: mtf.Tensor, ids: mtf.Tensor) -> list[list[mtf.Tensor]]:
        known = {name: x if name == "inputs" else x.astype(tf.float32)}
        shares = mtf.one_hot(ids, ("classes", 12), dtype=tf.float32)
        return [
            tf.nest.flatten([model.metrics({**known, "labels": each}, training) for training in (True, False)])
            for each in (shares, ids)
        ]

    of_shares, of_ids = interpret(program, {"x": (shape, values), "ids": (of_labels, labels)}, "a:1").results
    for found, expected in zip(of_shares, of_ids, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_models_of_texts_take_int64() -> None:
    text = case("gpt2")
    batch = text.batch()

    def program(**features: mtf.Tensor) -> list[mtf.Tensor]:
        return [value for value, _ in text.model.metrics(features, False).values()]

    def found(dtype: str) -> list[np.ndarray]:
        inputs = {
            name: (text.specs[name].shape, x.astype(dtype) if x.dtype == np.int32 else x) for name, x in batch.items()
        }
        return interpret(program, inputs, "a:1").results

    for wide, narrow in zip(found("int64"), found("int32"), strict=True):
        np.testing.assert_array_equal(wide, narrow)
