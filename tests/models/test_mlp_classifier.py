from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.models import MLPClassifier
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.house.sharpest import sharpest

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


@pytest.mark.parametrize(
    "layout",
    sharpest(
        ["batch:rows;hidden:cols", "batch:rows+cols", "pixels:cols;hidden:rows"],
        ["batch:rows;hidden:cols", "pixels:cols;hidden:rows"],
    ),
)
def test_nothing_is_gathered_for_want_of_a_way_to_work_on_slices(layout: str) -> None:
    """In the sizes of digits_mlp.gin, and with a last batch that does not divide."""
    model = MLPClassifier(num_classes=10, hidden_sizes=(512,))

    def step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(model.metrics({"images": images, "labels": labels}, True)["loss"])
        mtf.optimize.AdamWOptimizer(0.008, weight_decay=0.1).minimize(loss)
        return loss

    for size in (64, 30):
        specs = {
            "images": mtf.TensorSpec([("batch", size), ("pixels", 64)]),
            "labels": mtf.TensorSpec([("batch", size)], tf.int32),
        }
        report = mtf.function(step, mtf.PlanMeshImpl("rows:2;cols:4", layout), inputs=specs).report()
        assert report.gathers_for_want == (), size


def test_unknown_activation() -> None:
    with pytest.raises(ValueError, match=r"activation 'rellu' is not a function; did you mean \"relu\"\?"):
        MLPClassifier(num_classes=3, activation="rellu")
