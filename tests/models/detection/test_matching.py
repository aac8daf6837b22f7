from __future__ import annotations

import numpy as np

import meshtf as mtf
from meshtf.models.detection.boxes import decoded, encoded
from meshtf.models.detection.matching import matched_objects
from meshtf.models.detection.multibox_loss import hardest, multibox_loss
from meshtf.models.detection.suppression import kept
from meshtf.testing import FUNCTION_TERMS, assert_close, interpret
from tests.models.detection.average_precision_by_numpy import overlap

ANCHORS, OBJECTS = 11, 3


def boxes(*shape: int, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    low = random.uniform(0, 0.5, (*shape, 2))
    return np.concatenate([low, low + random.uniform(0.15, 0.5, low.shape)], -1).astype(np.float32)


def test_an_anchor_takes_the_object_it_overlaps_most_and_no_object_is_without_one() -> None:
    anchors, given = boxes(ANCHORS, seed=0), boxes(2, OBJECTS, seed=1)
    given[1, 1] = given[1, 0]  # two objects that take one anchor
    labels = np.array([[3, 1, 0], [2, 1, 1]], np.int32)
    shared = np.array([[[overlap(a, b) for b in image] for a in anchors] for image in given])
    expected = np.zeros((2, ANCHORS), np.int32)
    for image in range(2):
        there = np.flatnonzero(labels[image])
        best = there[shared[image][:, there].argmax(1)]
        expected[image] = np.where(
            shared[image].max(1, where=labels[image] > 0, initial=-1) > 0.5, labels[image][best], 0
        )
        for number in there:
            expected[image][shared[image][:, number].argmax()] = labels[image, number]
    assert (expected[0] == 1).any()
    inputs = {
        "anchors": (f"anchors:{ANCHORS} coordinates:4", anchors),
        "boxes": (f"batch:2 objects:{OBJECTS} coordinates:4", given),
        "labels": (f"batch:2 objects:{OBJECTS}", labels),
    }

    def program(anchors: mtf.Tensor, boxes: mtf.Tensor, labels: mtf.Tensor) -> list[mtf.Tensor]:
        found = matched_objects(anchors, boxes, labels, least_overlap=0.5)[1]
        back = decoded(encoded(boxes, anchors), anchors)
        return [
            mtf.transpose(found, ["batch:2", f"anchors:{ANCHORS}"]),
            mtf.reduce_mean(back, reduced_dim=anchors.shape[0]),
        ]

    for mesh, layout in (("a:1", ""), ("a:2;b:3", "anchors:a;objects:b"), ("a:2;b:2", "batch:a;coordinates:b")):
        found, back = interpret(program, inputs, mesh, layout).results
        np.testing.assert_array_equal(found, expected)
        assert_close(back, given, terms=(20 * FUNCTION_TERMS, ANCHORS))


def test_the_hardest_negatives_count_and_of_equal_ones_the_first() -> None:
    losses = np.array([[5, 1, 3, 3, 3, 9], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]], np.float32)
    positive = np.array([[0, 0, 0, 0, 0, 1], [0] * 6, [1, 1, 1, 1, 1, 0]], np.float32)
    expected = [[1, 0, 1, 1, 0, 0], [0] * 6, [0, 0, 0, 0, 0, 1]]
    inputs = {"losses": ("batch:3 anchors:6", losses), "positive": ("batch:3 anchors:6", positive)}

    def program(losses: mtf.Tensor, positive: mtf.Tensor) -> mtf.Tensor:
        return hardest(losses, positive, 3.0 * mtf.reduce_sum(positive, reduced_dim="anchors"))

    for layout in ("", "anchors:a", "batch:a"):
        np.testing.assert_array_equal(interpret(program, inputs, "a:4", layout).results, expected)


def test_the_loss_is_that_of_a_plain_account() -> None:
    random = np.random.default_rng(0)
    logits, offsets = (random.normal(size=(2, ANCHORS, n)).astype(np.float32) for n in (3, 4))
    wanted = random.normal(0, 2, offsets.shape).astype(np.float32)
    labels = np.zeros((2, ANCHORS), np.int32)
    labels[0, [2, 7]] = 1, 2
    wide = logits.astype(np.float64)
    entropy = np.log(np.exp(wide).sum(-1)) - np.take_along_axis(wide, labels[..., None], -1)[..., 0]
    error = abs(offsets.astype(np.float64) - wanted)
    smooth = np.where(error < 1, error**2 / 2, error - 0.5).sum(-1)
    negatives = np.sort(entropy[0][labels[0] == 0])[::-1][:6]
    expected = [(smooth[0, [2, 7]].sum() + entropy[0, [2, 7]].sum() + negatives.sum()) / 2, 0.0]
    shape = f"batch:2 anchors:{ANCHORS}"
    inputs = {
        "logits": (f"{shape} classes:3", logits),
        "offsets": (f"{shape} coordinates:4", offsets),
        "labels": (shape, labels),
        "wanted": (f"{shape} coordinates:4", wanted),
    }

    def program(**given: mtf.Tensor) -> mtf.Tensor:
        return multibox_loss(**given, negatives_per_positive=3.0)

    for layout in ("", "anchors:a", "classes:a", "batch:a;coordinates:b"):
        found = interpret(program, inputs, "a:2;b:2", layout).results
        assert_close(found, np.array(expected), terms=(4 * ANCHORS, 4 * FUNCTION_TERMS), dtype="float32")


def test_suppression_is_greedy() -> None:
    given = boxes(2, 12, seed=5)
    scores = np.tile(np.linspace(0.9, 0.1, 12, dtype=np.float32), (2, 1))
    scores[1, 9:] = 0
    expected = np.zeros((2, 12))
    for image in range(2):
        for number in np.flatnonzero(scores[image]):
            before = np.flatnonzero(expected[image])
            expected[image, number] = all(overlap(given[image, number], given[image, n]) <= 0.3 for n in before)
    assert 4 < expected.sum() < 20
    inputs = {"boxes": ("batch:2 candidates:12 coordinates:4", given), "scores": ("batch:2 candidates:12", scores)}

    def program(boxes: mtf.Tensor, scores: mtf.Tensor) -> mtf.Tensor:
        return kept(boxes, scores, max_overlap=0.3)

    for layout in ("", "candidates:a", "batch:a;other_candidates:b"):
        np.testing.assert_array_equal(interpret(program, inputs, "a:2;b:3", layout).results, expected)
