"""Weighted means as numerators and denominators, which add up over batches and parts of batches.

A batch with values [1, 2, 3] and weights [1, 1, 0] has the mean 3 / 2. A second batch has one value 9 of weight 1, so
its mean is 9 / 1. The mean over both is (3 + 9) / (2 + 1) = 4. The mean of the two means, 5.25, would be wrong.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.errors import MeshtfError
from meshtf.train.training import LOSS, Metric


class MetricError(MeshtfError, ValueError):
    """A metric of a model that cannot be used.

    It is neither a tensor nor a pair of tensors of equal shapes, or it has no elements, or it has too many dimensions
    to be displayed.
    """


@dataclasses.dataclass(frozen=True)
class MetricSums:
    """The sums of one metric: of its weighted values, and of its weights. Both are float32 scalars, or vectors
    of one shape.
    """

    numerator: mtf.Tensor
    denominator: mtf.Tensor

    @property
    def mean(self) -> mtf.Tensor:
        """The ratio of the sums, and 0 where all weights are 0."""
        return self.numerator / mtf.where(mtf.greater(self.denominator, 0.0), self.denominator, 1.0)


def training_sums(name: str, metric: Metric) -> MetricSums:
    """Returns the sums over a batch in which every example counts."""
    values, weights = _parts(name, metric)
    if weights is None:
        return MetricSums(mtf.reduce_sum(values), mtf.constant(values.mesh, float(values.size)))
    return MetricSums(_weighted_sum(values, weights), mtf.reduce_sum(weights))


def evaluation_sums(name: str, metric: Metric, example_weights: mtf.Tensor) -> MetricSums:
    """Returns the sums over the examples of a batch, without padding. `example_weights` [batch] is 1 for an example and
    0 for padding.

    A metric may describe the batch as a whole. Its weight is then the number of examples, and it keeps its shape unless
    it is the loss. The model computes it without `example_weights`, so it is right only for a batch without padding.
    """
    values, weights = _parts(name, metric)
    counted = mtf.ones_like(values) if weights is None else weights
    batch_name = example_weights.shape.dimension_names[0]
    if tells_of_whole_batch(name, metric, batch_name):
        counted *= mtf.reduce_sum(example_weights)
        if whole_batch_value(name, metric, batch_name) is not None:
            return MetricSums(_weighted(values, counted), counted)
    else:
        counted *= example_weights
    return MetricSums(_weighted_sum(values, counted), mtf.reduce_sum(counted))


def tells_of_whole_batch(name: str, metric: Metric, batch_name: str = "batch") -> bool:
    """Tells whether the metric describes the batch as a whole: it has no dimension `batch`."""
    values, _ = _parts(name, metric)
    return not values.shape.has(batch_name)


def whole_batch_value(name: str, metric: Metric, batch_name: str = "batch") -> mtf.Tensor | None:
    """Returns a metric of the batch as a whole, as a float32 scalar, [n] or [layers, n]. Returns None for the loss and
    for a metric of single examples.

    Raises:
      MetricError: if it describes the batch as a whole and has another shape.
    """
    values, _ = _parts(name, metric)
    if name == LOSS or values.shape.has(batch_name):
        return None
    if values.shape.ndims > 2 or (values.shape.ndims == 2 and values.shape.dimension_names[0] != "layers"):
        raise MetricError(
            f'the metric "{name}" of the model has shape [{values.shape}], without the dimension "{batch_name}" to '
            f"average over; such a metric must be a scalar, [n] or [layers, n]"
        )
    return values


def _weighted_sum(values: mtf.Tensor, weights: mtf.Tensor) -> mtf.Tensor:
    return mtf.reduce_sum(_weighted(values, weights))


def _weighted(values: mtf.Tensor, weights: mtf.Tensor) -> mtf.Tensor:
    # Multiplying is not enough: where the weight is 0 a value may be infinite, and 0 times infinity is a NaN.
    return mtf.where(mtf.not_equal(weights, 0.0), values * weights, 0.0)


def _parts(name: str, metric: Metric) -> tuple[mtf.Tensor, mtf.Tensor | None]:
    """Returns the values and the weights in float32."""
    values, weights = metric if isinstance(metric, tuple) and len(metric) == 2 else (metric, None)
    if not isinstance(values, mtf.Tensor) or not (weights is None or isinstance(weights, mtf.Tensor)):
        raise MetricError(
            f'the metric "{name}" of the model must be a tensor or a pair (values, weights) of tensors, not {metric!r}'
        )
    if not values.size:
        raise MetricError(
            f'the metric "{name}" of the model has shape [{values.shape}], so it has no mean: a dimension of size 0 '
            f"has no elements"
        )
    if weights is None:
        return mtf.cast(values, tf.float32), None
    if values.shape != weights.shape:
        raise MetricError(
            f'the metric "{name}" of the model is a pair of values [{values.shape}] and weights [{weights.shape}], '
            f"whose shapes must be equal"
        )
    return mtf.cast(values, tf.float32), mtf.cast(weights, tf.float32)
