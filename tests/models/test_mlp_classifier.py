from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.models import MLPClassifier

BATCH, PIXELS = mtf.Dimension("batch", 8), mtf.Dimension("pixels", 4)


def metrics_of(model: MLPClassifier, layout: str) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    inputs = {"images": mtf.TensorSpec([BATCH, PIXELS], tf.float32), "labels": mtf.TensorSpec([BATCH], tf.int32)}
    program = mtf.function(model.metrics, mtf.SpmdMeshImpl("rows:2;cols:4", layout), inputs=inputs, seed=2)
    images = generator.normal(size=(8, 4)).astype(np.float32)
    values = program(images=images, labels=generator.integers(0, 3, 8).astype(np.int32))
    return {name: np.asarray(value) for name, value in values.items()}


def test_layout_changes_nothing() -> None:
    model = MLPClassifier(num_classes=3, hidden_sizes=(16, 8))
    expected = metrics_of(model, "")
    assert set(expected) == {"loss", "accuracy"}
    assert expected["loss"].shape == (8,)
    assert set(expected["accuracy"]) <= {0, 1}
    for layout in ("batch:rows", "batch:rows;hidden:cols", "hidden:rows+cols", "batch:rows;pixels:cols"):
        actual = metrics_of(model, layout)
        np.testing.assert_allclose(actual["loss"], expected["loss"], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(actual["accuracy"], expected["accuracy"])


def test_unknown_activation() -> None:
    with pytest.raises(ValueError, match=r"activation 'rellu' is not a function of meshtf"):
        MLPClassifier(num_classes=3, activation="rellu")
