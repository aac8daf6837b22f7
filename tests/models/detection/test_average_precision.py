from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.models.detection.average_precision import (
    LEAST_OVERLAPS,
    NUM_BINS,
    average_precisions,
    detection_counts,
    mean_average_precision,
)
from meshtf.models.detection.suppression import Detections
from meshtf.testing import interpret
from tests.models.detection.average_precision_by_numpy import average_precision

IMAGES, OBJECTS, DETECTIONS, CLASSES = 6, 4, 8, mtf.Dimension("classes", 4)


def drawn(*, all_differ: bool = False) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Objects, and detections near some of them. Scores are in the middle of bins, and several are equal, or none."""
    random = np.random.default_rng(3)
    low = random.uniform(0, 0.6, (IMAGES, OBJECTS, 2))
    boxes = np.concatenate([low, low + random.uniform(0.2, 0.4, low.shape)], -1).astype(np.float32)
    labels = random.integers(0, 3, (IMAGES, OBJECTS)).astype(np.int32)  # none is of class 3
    near = random.integers(0, OBJECTS, (IMAGES, DETECTIONS))
    rows = np.arange(IMAGES)[:, np.newaxis]
    noise = random.uniform(-0.03, 0.03, (IMAGES, DETECTIONS, 4)) * random.integers(0, 2, (IMAGES, DETECTIONS, 1))
    scores = -np.sort(-(random.integers(1, 40, (IMAGES, DETECTIONS)) * 8 + 0.5) / NUM_BINS, axis=1)
    if all_differ:
        places = np.random.default_rng(4).permutation(NUM_BINS)[: scores.size].reshape(scores.shape)
        scores = -np.sort(-(places + 0.5) / NUM_BINS, axis=1)
    scores[:, -1] = 0.0  # none
    classes = np.where(random.random(near.shape) < 0.8, labels[rows, near], random.integers(1, 4, near.shape))
    found = {"boxes": boxes[rows, near] + noise, "classes": np.maximum(classes, 1), "scores": scores}
    dtypes = {"boxes": np.float32, "classes": np.int32, "scores": np.float32}
    return {name: x.astype(dtypes[name]) for name, x in found.items()}, {"boxes": boxes, "labels": labels}


def counts(layout: str, mesh: str, part: slice, *, all_differ: bool = False) -> np.ndarray:
    found, given = drawn(all_differ=all_differ)
    shapes = {"boxes": ["coordinates:4"], "classes": [], "scores": [], "labels": []}

    def fed(kind: str, size: int, of: dict[str, np.ndarray]) -> dict[str, tuple[str, np.ndarray]]:
        count = len(range(IMAGES)[part])
        own = {name: " ".join([f"batch:{count}", f"{kind}:{size}", *shapes[name]]) for name in of}
        return {f"{kind}_{name}": (own[name], x[part]) for name, x in of.items()}

    def program(**inputs: mtf.Tensor) -> mtf.Tensor:
        own = Detections(*(inputs[f"detections_{name}"] for name in ("boxes", "classes", "scores")))
        return detection_counts(own, inputs["objects_boxes"], inputs["objects_labels"], CLASSES)

    inputs = fed("detections", DETECTIONS, found) | fed("objects", OBJECTS, given)
    return interpret(program, inputs, mesh, layout).results


def test_it_is_that_of_a_plain_count_under_every_layout_and_over_batches() -> None:
    """Batches of 4 and 2 images: their counts per image, as often as they have images."""
    found, given = drawn()
    expected = np.full((len(LEAST_OVERLAPS), CLASSES.size), np.nan)
    for threshold, least in enumerate(LEAST_OVERLAPS):
        for label in (1, 2):
            expected[threshold, label] = average_precision(found, given, label, least)
    assert 0.2 < expected[0, 1] < 0.99
    assert expected[-1, 1] < expected[0, 1]
    for mesh, layout in (("a:1", ""), ("a:2;b:3", "batch:a;detections:b"), ("a:3", "objects:a")):
        every = (4 * counts(layout, mesh, slice(0, 4)) + 2 * counts(layout, mesh, slice(4, 6))) / 6
        np.testing.assert_allclose(average_precisions(every, CLASSES.size), expected, atol=1e-12)
        means = mean_average_precision(every, CLASSES.size)
        assert means["mean_average_precision"] == pytest.approx(np.nanmean(expected))
        assert means["average_precision_50"] == pytest.approx(np.nanmean(expected[0]))


def test_it_is_that_of_pycocotools() -> None:
    """Recorded from `COCOeval` of pycocotools 2.0.11, for the same boxes with scores that all differ.

    It takes detections of equal scores one by one, and this one takes them together.
    """
    found = average_precisions(counts("", "a:1", slice(0, IMAGES), all_differ=True), CLASSES.size)
    np.testing.assert_allclose(found[:, 1], [*[0.520944] * 7, 0.465093, 0.333954, 0.333954], atol=1e-6)
    np.testing.assert_allclose(found[:, 2], [0.574257] * 10, atol=1e-6)
    assert np.isnan(found[:, 3]).all()  # COCOeval says -1 of a class without objects


def test_without_objects_there_is_none() -> None:
    size = len(LEAST_OVERLAPS) * 2 * NUM_BINS + 2 * NUM_BINS + 2
    assert mean_average_precision(np.zeros(size), 2) == {}
