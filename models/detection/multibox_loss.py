"""The loss of a detector: offsets of boxes, and classes with hard negative mining."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.models.detection.boxes import COORDINATES


def multibox_loss(
    logits: mtf.Tensor,
    offsets: mtf.Tensor,
    labels: mtf.Tensor,
    wanted: mtf.Tensor,
    *,
    negatives_per_positive: float,
) -> mtf.Tensor:
    """The loss [batch] of Liu et al. (2016), section 2.2, divided by the number of anchors with an object.

    It is the smooth L1 loss of the offsets of anchors with an object, plus the cross-entropy of the classes of these
    anchors and of the hardest negatives. An image without an object has the loss 0.

    Args:
      logits: [batch, anchors, classes].
      offsets: [batch, anchors, coordinates].
      labels: integers [batch, anchors]; 0 for none.
      wanted: the right offsets where an anchor has a label, and any finite numbers elsewhere.
      negatives_per_positive: how many anchors without an object count, for each with one.
    """
    anchors, classes = labels.shape[-1], logits.shape[-1]
    positive = mtf.cast(mtf.greater(labels, 0), tf.float32)
    count = mtf.reduce_sum(positive, reduced_dim=anchors)
    of_offsets = mtf.reduce_sum(mtf.layers.huber_loss(offsets, wanted), reduced_dim=COORDINATES)
    of_classes = mtf.layers.softmax_cross_entropy_with_logits(logits, labels, classes)
    mined = hardest(mtf.stop_gradient(of_classes), positive, count * negatives_per_positive)
    total = mtf.reduce_sum(of_offsets * positive + of_classes * (positive + mined), reduced_dim=anchors)
    return total / mtf.maximum(count, 1.0) * mtf.cast(mtf.greater(count, 0.0), tf.float32)


def hardest(losses: mtf.Tensor, positive: mtf.Tensor, count: mtf.Tensor) -> mtf.Tensor:
    """1 for the `count` [batch] negatives of largest loss [batch, anchors], or for all if they are fewer; else 0.

    The first of equal losses counts. The result is exact under every layout, because all anchors are sorted together.
    """
    anchors = losses.shape[-1]
    of_negatives = mtf.where(mtf.greater(positive, 0.5), -1.0, losses)
    order = mtf.argsort(of_negatives, anchors, "DESCENDING")
    rank = mtf.cast(mtf.argsort(order, anchors), tf.float32)
    return mtf.cast(mtf.less(rank, count), tf.float32) * (1.0 - positive)
