"""The area under the curve over all batches of an evaluation, from all of their scores."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

import meshtf as mtf
from meshtf.train._metric_sums import MetricError
from meshtf.train.training import Metric

SCORES, LABELS = "scores", "labels"

_NO_SCORES = """\
the metric "{name}" of the model is a mapping, so it is an area under the curve and must be \
{{"scores": scores, "labels": labels}}, both tensors [{batch}], and has {found}"""


def ranked(metrics: Mapping[str, Metric], batch_name: str = "batch") -> dict[str, Mapping[str, mtf.Tensor]]:
    """Returns the metrics that are areas under the curve.

    Raises:
      MetricError: if one has other keys or shapes.
    """
    found = {name: metric for name, metric in metrics.items() if isinstance(metric, Mapping)}
    for name, metric in found.items():
        are_right = {*metric} == {SCORES, LABELS} and all(
            isinstance(x, mtf.Tensor) and x.shape.dimension_names == [batch_name] for x in metric.values()
        )
        if not are_right:
            described = ", ".join(f'"{key}" {x!r}' for key, x in metric.items()) or "nothing"
            raise MetricError(_NO_SCORES.format(name=name, batch=batch_name, found=described))
    return found


class RankedScores:
    """The scores and labels so far, by the name of the metric."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}

    def add(self, results: Mapping[str, Mapping[str, np.ndarray]], weights: np.ndarray) -> None:
        """Adds a batch. `weights` [batch] is 0 for padding, for which some programs return no scores."""
        is_example = weights != 0
        for name, result in results.items():
            scores, labels = (np.asarray(result[key]) for key in (SCORES, LABELS))
            if len(scores) == len(is_example):
                scores, labels = scores[is_example], labels[is_example]
            self._parts.setdefault(name, []).append((scores, labels))

    def areas(self) -> dict[str, float]:
        """Returns the area under the curve of each metric. It is NaN if all labels are equal or a score is NaN."""
        return {
            name: area_under_curve(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
            for name, parts in self._parts.items()
        }


def area_under_curve(scores: np.ndarray, labels: np.ndarray) -> float:
    """Computes the area from the sum of ranks (Mann and Whitney 1947). Equal scores all get the mean of their ranks."""
    is_positive = labels > 0.5
    positive, negative = int(is_positive.sum()), int((~is_positive).sum())
    if not positive or not negative or np.isnan(scores).any():
        return float("nan")
    _, values, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[values]
    return float((ranks[is_positive].sum() - positive * (positive + 1) / 2) / (positive * negative))
