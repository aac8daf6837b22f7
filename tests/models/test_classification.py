"""The metrics of classes under every layout, against a sort by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.models import MLPClassifier
from meshtf.testing import interpret

BATCH, PIXELS, CLASSES = 8, 6, 12


def evaluated(images: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
    model = MLPClassifier(num_classes=CLASSES, hidden_sizes=())
    return {
        **model.metrics({"images": images, "labels": labels}, is_training=False),
        "logits": model.predict({"images": images})["probabilities"],
    }


@pytest.mark.parametrize(("mesh", "layout"), [("c:1", ""), ("r:2;c:4", "batch:r;classes:c"), ("r:8", "batch:r")])
def test_the_right_class_is_among_the_five_likeliest(mesh: str, layout: str) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, BATCH).astype(np.int32)
    shapes = [mtf.Shape([("batch", BATCH), ("pixels", PIXELS)]), mtf.Shape([("batch", BATCH)])]
    images = random.normal(size=(BATCH, PIXELS)).astype(np.float32)
    given = {"images": (shapes[0], images), "labels": (shapes[1], labels)}
    found = interpret(evaluated, given, mesh, layout).results
    order = np.argsort(-found["logits"], axis=-1)
    np.testing.assert_array_equal(found["top_5_accuracy"], (order[:, :5] == labels[:, None]).any(1))
    np.testing.assert_array_equal(found["accuracy"], order[:, 0] == labels)
    assert 0 < found["top_5_accuracy"].sum() < BATCH


@pytest.mark.parametrize(("classes", "is_training"), [(12, True), (10, False)])
def test_five_of_few_classes_say_nothing(classes: int, is_training: bool) -> None:
    graph = mtf.Graph()
    with graph:
        mesh = mtf.Mesh(graph)
        features = {"images": mtf.zeros(mesh, "batch:2 pixels:3"), "labels": mtf.zeros(mesh, "batch:2", tf.int32)}
        found = MLPClassifier(num_classes=classes, hidden_sizes=()).metrics(features, is_training=is_training)
    assert set(found) == {"loss", "accuracy"}
