"""Non-maximum suppression: keeps only the box with the highest score of boxes that overlap."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.models.detection.boxes import overlaps

_CANDIDATES, _OTHERS = "candidates", "other_candidates"


@dataclasses.dataclass(frozen=True)
class Detections:
    """Detected objects in order of their scores.

    Attributes:
      boxes: [batch, detections, coordinates].
      classes: int32 [batch, detections].
      scores: [batch, detections]; 0 where there is no detection.
    """

    boxes: mtf.Tensor
    classes: mtf.Tensor
    scores: mtf.Tensor


def kept(boxes: mtf.Tensor, scores: mtf.Tensor, *, max_overlap: float) -> mtf.Tensor:
    """1 for each candidate that no kept candidate before it overlaps too much, else 0: [..., candidates].

    Candidates are in order of their scores. Each step of the loop settles at least one more candidate, and the loop
    ends when nothing changes. So the result is that of the greedy algorithm.

    Args:
      boxes: [..., candidates, coordinates].
      scores: [..., candidates]; a candidate of score 0 is never kept.
      max_overlap: the largest intersection over union of two that are kept.
    """
    candidates = scores.shape[-1]
    others = mtf.rename_dimension(boxes, _CANDIDATES, _OTHERS)
    place = mtf.range(boxes.mesh, candidates)
    is_later = mtf.greater(place, mtf.rename_dimension(place, _CANDIDATES, _OTHERS))
    is_near = mtf.greater(overlaps(boxes, others), max_overlap)
    suppresses = mtf.cast(mtf.logical_and(is_near, is_later), tf.float32)
    is_one = mtf.cast(mtf.greater(scores, 0.0), tf.float32)

    def is_open(_: mtf.Tensor, changes: mtf.Tensor) -> mtf.Tensor:
        return mtf.greater(changes, 0.0)

    def settled(keep: mtf.Tensor, _: mtf.Tensor) -> list[mtf.Tensor]:
        before = mtf.rename_dimension(keep, _CANDIDATES, _OTHERS)
        nearby = mtf.einsum([suppresses, before], output_shape=keep.shape)
        now = is_one * mtf.cast(mtf.less(nearby, 0.5), tf.float32)
        return [now, mtf.reduce_sum(mtf.abs(now - keep))]

    return mtf.while_loop(is_open, settled, [is_one, mtf.ones(boxes.mesh, [])], 1, maximum_iterations=candidates.size)[
        0
    ]


def best_detections(
    boxes: mtf.Tensor,
    probabilities: mtf.Tensor,
    *,
    num_candidates: int,
    num_detections: int,
    least_score: float,
    max_overlap: float,
) -> Detections:
    """The best boxes of all classes but the first, which is the background.

    Args:
      boxes: [batch, anchors, coordinates].
      probabilities: [batch, anchors, classes].
      num_candidates: how many boxes of each class are considered.
      num_detections: how many boxes are returned.
      least_score: boxes of at most this score are dropped.
      max_overlap: the largest intersection over union of two boxes of a class.
    """
    batch, (anchors, classes) = boxes.shape.dims[:-2], probabilities.shape[-2:]
    objects = mtf.slice(probabilities, 1, classes.size - 1, classes)
    scores, places = mtf.top_k(objects, anchors, (_CANDIDATES, min(num_candidates, anchors.size)))
    scores = mtf.where(mtf.greater(scores, least_score), scores, 0.0)
    own = mtf.gather(boxes, places, anchors)
    own = mtf.transpose(own, [*places.shape, boxes.shape[-1]])
    scores = scores * kept(own, scores, max_overlap=max_overlap)
    among = mtf.Dimension("among", places.shape[-2].size * places.shape[-1].size)
    flat = [mtf.reshape(x, [*batch, among, *x.shape.dims[len(batch) + 2 :]]) for x in (scores, own)]
    best, chosen = mtf.top_k(flat[0], among, ("detections", min(num_detections, among.size)))
    found = mtf.floordiv(chosen, places.shape[-1].size) + 1
    chosen_boxes = mtf.transpose(mtf.gather(flat[1], chosen, among), [*best.shape, boxes.shape[-1]])
    return Detections(chosen_boxes, found, best)
