from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models import MLPClassifier
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret

BATCH, PIXELS = mtf.Dimension("batch", 8), mtf.Dimension("pixels", 4)


def metrics_of(model: MLPClassifier, layout: str, *, is_training: bool = True) -> dict[str, np.ndarray]:
    def program(images: mtf.Tensor, labels: mtf.Tensor) -> dict[str, mtf.Tensor]:
        return model.metrics({"images": images, "labels": labels}, is_training)

    generator = np.random.default_rng(0)
    inputs = {
        "images": ([BATCH, PIXELS], generator.normal(size=(8, 4)).astype(np.float32)),
        "labels": ([BATCH], generator.integers(0, 3, 8).astype(np.int32)),
    }
    return interpret(program, inputs, "rows:2;cols:4", layout, seed=2).results


def test_layout_changes_nothing() -> None:
    model = MLPClassifier(num_classes=3, hidden_sizes=(16, 8))
    expected = metrics_of(model, "")
    assert set(expected) == {"loss", "accuracy"}
    assert expected["loss"].shape == (8,)
    assert set(expected["accuracy"]) <= {0, 1}
    for layout in ("batch:rows", "batch:rows;hidden:cols", "hidden:rows+cols", "batch:rows;pixels:cols"):
        actual = metrics_of(model, layout)
        assert_close(actual["loss"], expected["loss"], terms=(4 + 16 + 8 + 3, 2 * FUNCTION_TERMS))
        np.testing.assert_array_equal(actual["accuracy"], expected["accuracy"])
    np.testing.assert_array_equal(metrics_of(model, "", is_training=False)["loss"], expected["loss"])


def test_unknown_activation() -> None:
    with pytest.raises(ValueError, match=r"activation 'rellu' is not a function; did you mean \"relu\"\?"):
        MLPClassifier(num_classes=3, activation="rellu")
