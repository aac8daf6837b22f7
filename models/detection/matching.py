"""Matches each default box to the object that it is to find."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.models.detection.boxes import overlaps


def matched_objects(
    anchors: mtf.Tensor, boxes: mtf.Tensor, labels: mtf.Tensor, *, least_overlap: float
) -> tuple[mtf.Tensor, mtf.Tensor]:
    """The object of each anchor, int32 [batch, anchors], and its label, 0 for an anchor without one.

    An anchor takes the object that it overlaps most, if that is more than `least_overlap`. Each object also takes the
    anchor that overlaps it most, so that every object has one (Liu et al. 2016, section 2.2). If two objects take the
    same anchor, the later object gets it.

    Args:
      anchors: [anchors, coordinates].
      boxes: [batch, objects, coordinates].
      labels: int32 or int64 [batch, objects]; 0 stands for no object.
      least_overlap: the least intersection over union.
    """
    objects, along = labels.shape[-1], anchors.shape[0]
    is_object = mtf.greater(labels, 0)
    shared = mtf.where(is_object, overlaps(anchors, boxes), -1.0)
    own = mtf.one_hot(mtf.argmax(shared, along), along, dtype=tf.float32)
    order = 2.0 + mtf.range(labels.mesh, objects, tf.float32)
    is_own = mtf.logical_and(mtf.greater(own, 0.5), is_object)
    score = mtf.where(is_own, order, shared)
    found = mtf.argmax(score, objects)
    is_found = mtf.greater(mtf.reduce_max(score, reduced_dim=objects), least_overlap)
    return found, mtf.where(is_found, mtf.gather(labels, found, objects), 0)
