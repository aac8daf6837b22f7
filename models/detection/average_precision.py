"""Average precision as COCO measures it: counts on the mesh, which are averaged over batches, and means of them."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.models.detection.boxes import overlaps
from meshtf.models.detection.suppression import Detections

LEAST_OVERLAPS = tuple(round(0.5 + 0.05 * n, 2) for n in range(10))
"""The least intersections over union at which a detection counts as right: 0.5 to 0.95."""

NUM_BINS = 512
"""The number of bins of scores, each 1/512 wide."""

_RECALLS = np.linspace(0.0, 1.0, 101)
_THRESHOLDS = mtf.Dimension("thresholds", len(LEAST_OVERLAPS))


def hits(found: Detections, boxes: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
    """1 for each detection that finds an object, at each least overlap: [detections, batch, thresholds].

    Detections choose in the order of their scores. Each looks at the objects of its class that no earlier detection
    took, and takes the one that it overlaps most, if that is enough.

    Args:
      found: the detections.
      boxes: [batch, objects, coordinates].
      labels: int32 or int64 [batch, objects]; 0 stands for no object.
    """
    objects, along = labels.shape[-1], found.scores.shape[-1]
    thresholds = mtf.constant(labels.mesh, LEAST_OVERLAPS, [_THRESHOLDS])
    is_same = mtf.logical_and(mtf.equal(found.classes.astype(labels.dtype), labels), mtf.greater(labels, 0))
    is_same = mtf.logical_and(is_same, mtf.greater(found.scores, 0.0))
    shared = mtf.where(is_same, overlaps(found.boxes, boxes), -1.0)
    free = mtf.ones(labels.mesh, [*labels.shape, _THRESHOLDS])

    def assigned(carried: list[mtf.Tensor], parts: list[mtf.Tensor]) -> tuple[list[mtf.Tensor], list[mtf.Tensor]]:
        (still_free,), (overlap,) = carried, parts
        is_good = mtf.logical_and(mtf.greater_equal(overlap, thresholds), mtf.greater(still_free, 0.5))
        score = mtf.where(is_good, overlap, -1.0)
        hit = mtf.cast(mtf.greater(mtf.reduce_max(score, reduced_dim=objects), 0.0), tf.float32)
        taken = mtf.one_hot(mtf.argmax(score, objects), objects, dtype=tf.float32) * hit
        return [still_free - mtf.transpose(taken, still_free.shape)], [hit]

    return mtf.scan(assigned, free, shared, along)[1][0]


def detection_counts(found: Detections, boxes: mtf.Tensor, labels: mtf.Tensor, classes: mtf.Dimension) -> mtf.Tensor:
    """Counts per image, [counts], from which `mean_average_precision` follows, after means over all batches.

    They are: right detections [thresholds, classes, bins of scores], all detections [classes, bins], objects [classes].
    """
    batch = labels.shape[0]
    bins = mtf.Dimension("bins", NUM_BINS)
    place = mtf.cast(mtf.minimum(found.scores * NUM_BINS, NUM_BINS - 1.0), tf.int32)
    is_one = mtf.cast(mtf.greater(found.scores, 0.0), tf.float32)
    of_class = mtf.one_hot(found.classes, classes, dtype=tf.float32) * is_one
    of_bin = mtf.one_hot(place, bins, dtype=tf.float32)
    right = mtf.einsum(
        [hits(found, boxes, labels) * of_class, of_bin], output_shape=mtf.Shape([_THRESHOLDS, classes, bins])
    )
    every = mtf.einsum([of_class, of_bin], output_shape=mtf.Shape([classes, bins]))
    is_object = mtf.cast(mtf.greater(labels, 0), tf.float32)
    objects = mtf.reduce_sum(mtf.one_hot(labels, classes, dtype=tf.float32) * is_object, output_shape=[classes])
    flat = [mtf.reshape(x, [("counts", x.size)]) for x in (right, every, objects)]
    return mtf.concat(flat, "counts") / float(batch.size)


def average_precisions(counts: np.ndarray, num_classes: int) -> np.ndarray:
    """The average precision [thresholds, classes] of counts [counts], and NaN for a class without an object.

    It is the mean over 101 recalls of the best precision at this recall or beyond, as in COCO (Lin et al. 2014).
    """
    sizes = [len(LEAST_OVERLAPS) * num_classes * NUM_BINS, num_classes * NUM_BINS, num_classes]
    right, every, objects = np.split(np.asarray(counts, np.float64), np.cumsum(sizes)[:-1])
    right = right.reshape(len(LEAST_OVERLAPS), num_classes, NUM_BINS)[..., ::-1].cumsum(-1)
    every = every.reshape(num_classes, NUM_BINS)[..., ::-1].cumsum(-1)
    found = np.full(right.shape[:2], np.nan)
    for threshold, number in np.ndindex(*found.shape):
        if objects[number] > 0:
            found[threshold, number] = _area(right[threshold, number], every[number], float(objects[number]))
    return found


def _area(right: np.ndarray, every: np.ndarray, count: float) -> float:
    """The average precision for `count` objects, from right and all detections so far, [bins] by falling score."""
    recall, precision = right / count, right / np.maximum(every, np.finfo(np.float64).tiny)
    best = np.append(np.maximum.accumulate(precision[::-1])[::-1], 0.0)
    # Counts are means over images, so that a recall may be off by rounding.
    return float(best[np.searchsorted(recall, _RECALLS - 1e-6)].mean())


def mean_average_precision(counts: np.ndarray, num_classes: int) -> dict[str, float]:
    """The "mean_average_precision" over all least overlaps, and "average_precision_50" at 0.5.

    Both are means over the classes that have objects; if no class has any, the dict is empty.
    """
    found = average_precisions(counts, num_classes)
    if np.isnan(found).all():
        return {}
    return {
        "mean_average_precision": float(np.nanmean(found)),
        "average_precision_50": float(np.nanmean(found[0])),
    }
