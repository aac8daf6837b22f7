"""How well scores rank examples: the area under the receiver operating characteristic."""

from __future__ import annotations

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import ShapeError


@language_function
def area_under_curve(scores: mtf.Tensor, labels: mtf.Tensor) -> tuple[mtf.Tensor, mtf.Tensor]:
    """The area under the ROC curve: how often an example of label 1 has a higher score than one of label 0.

    Equal scores count as half. It is exact for the examples given, wherever they are (Hanley & McNeil 1982): the scores
    of all cores are sorted together.

    Args:
      scores: [batch], floating.
      labels: [batch], 0 or 1, of any dtype.

    Returns:
      A float32 scalar, and its weight: 1.0, or 0.0 if all labels are equal, and there is no area.

    Raises:
      ShapeError: the two do not have the same single dimension.

    Examples:
      >>> scores = mtf.constant(mesh, [0.1, 0.4, 0.4, 0.8], "n:4")
      >>> labels = mtf.constant(mesh, [0.0, 1.0, 0.0, 1.0], "n:4")
      >>> value(mtf.layers.area_under_curve(scores, labels)[0])
      np.float32(0.875)
    """
    if scores.shape.ndims != 1 or labels.shape != scores.shape:
        raise ShapeError(
            f"scores [{scores.shape}] and labels [{labels.shape}] must have one dimension, the same for both"
        )
    (dim,) = scores.shape
    order = mtf.rename_dimension(mtf.argsort(scores, dim), dim.name, f"{dim.name}_by_score")
    ranks = order.shape[0]
    in_order = mtf.gather(scores, order, dim)
    positive = mtf.gather(mtf.cast(labels, tf.float32), order, dim)
    negative = 1.0 - positive
    below, above = (_at_group_edge(in_order, negative, ranks, reverse=reverse) for reverse in (False, True))
    positives, negatives = mtf.reduce_sum(positive), mtf.reduce_sum(negative)
    won = mtf.reduce_sum(positive * (negatives + below - above)) * 0.5
    pairs = positives * negatives
    has_both = mtf.greater(pairs, 0.0)
    return won / mtf.where(has_both, pairs, 1.0), mtf.cast(has_both, tf.float32)


def _at_group_edge(scores: mtf.Tensor, negative: mtf.Tensor, dim: mtf.Dimension, *, reverse: bool) -> mtf.Tensor:
    """The number of negative examples with a lower (a higher) score than each example [batch], in order of scores."""
    step, edge = (-1, dim.size - 1) if reverse else (1, 0)
    is_edge = mtf.logical_or(
        mtf.not_equal(scores, mtf.shift(scores, step, dim, wrap=False)),
        mtf.equal(mtf.range(scores.mesh, dim), edge),
    )
    before = mtf.cumsum(negative, dim, exclusive=True, reverse=reverse)
    return mtf.cummax(mtf.where(is_edge, before, 0.0), dim, reverse=reverse)
