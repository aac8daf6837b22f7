"""Exact means over held-out examples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np

import meshtf as mtf
from meshtf.train.step_programs import DENOMINATORS, LOSS, NUMERATORS
from meshtf.train.task import WEIGHTS, Task

BITS_PER_BYTE = "bits_per_byte"


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """Weighted means over held-out examples, each counted once; of text "bits_per_byte" is among them.

    `vectors` are likewise, [n] or [layers, n].
    """

    num_examples: int
    means: dict[str, float]
    vectors: dict[str, np.ndarray] = dataclasses.field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        means = ", ".join(f"{name} {value:.4f}" for name, value in self.means.items())
        return f"{means} (on {self.num_examples:,} held-out examples)"


def evaluate(
    task: Task, step: mtf.Function, batch_size: int, is_stopped: Callable[[], bool] = lambda: False
) -> Evaluation | None:
    """Every metric's mean over the held-out examples, whatever the batch size; None if it was stopped before the end.

    `step` is an `evaluation_step` of this batch size. Numerators and denominators are summed over all batches, in
    float64, before they are divided. A metric of which nothing counts has no mean.
    """
    sums: dict[str, dict[str, np.ndarray]] = {NUMERATORS: {}, DENOMINATORS: {}}
    num_examples, num_bytes = 0, 0
    for features in task.evaluation_batches(batch_size):
        if is_stopped():
            return None
        for kind, values in step(**features).items():
            for name, value in values.items():
                sums[kind][name] = sums[kind].get(name, 0.0) + np.asarray(value, np.float64)
        num_examples += round(float(np.sum(features[WEIGHTS])))
        num_bytes += task.num_bytes(features) or 0
    counted = {name: weight for name, weight in sums[DENOMINATORS].items() if np.all(weight)}
    found = {name: sums[NUMERATORS][name] / weight for name, weight in counted.items()}
    means = {name: float(x) for name, x in found.items() if not np.ndim(x)}
    if num_bytes:
        means[BITS_PER_BYTE] = float(sums[NUMERATORS][LOSS]) / math.log(2) / num_bytes
    return Evaluation(num_examples, means, {name: x for name, x in found.items() if np.ndim(x)})
