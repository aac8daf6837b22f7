"""Ends a training that no longer improves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gin

from meshtf.train.callback import Callback, Run
from meshtf.train.callbacks._arguments import check_integer, check_number
from meshtf.train.callbacks._held_out_metric import HeldOutMetric
from meshtf.train.evaluation import Evaluation
from meshtf.train.trainer import Trainer


@gin.configurable(module="meshtf.train")
class EarlyStopping(Callback):
    """Ends training once `patience` evaluations in a row were no better than the best before them.

    A resumed run ends at the same step as an uninterrupted one. Resumed with more patience, it continues.

    Args:
      metric: a metric of the held-out examples, such as "loss".
      mode: "min" if less is better, "max" if more is.
      patience: the number of evaluations without a better value after which training ends.
      min_delta: by how much a value must be better than the best so far to count as better.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    def __init__(self, metric: str = "loss", mode: str = "min", patience: int = 3, min_delta: float = 0.0) -> None:
        self._metric = HeldOutMetric("EarlyStopping", metric, mode)
        check_integer("EarlyStopping.patience", patience, least=1)
        check_number("EarlyStopping.min_delta", min_delta)
        self._patience, self._min_delta = patience, min_delta

    def check(self, trainer: Trainer) -> None:
        self._metric.check(trainer)

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        state = self._metric.own_state(state)
        self._best: float | None = state.get("best")
        self._best_step: int = state.get("best_step", 0)
        self._waited: int = state.get("evaluations_waited", 0)
        self._stop_after_patience(run)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        value = self._metric.value(evaluation)
        if value is not None and self._metric.is_better(value, self._best, self._min_delta):
            self._best, self._best_step, self._waited = value, run.step, 0
        else:
            self._waited += 1
        self._stop_after_patience(run)

    def _stop_after_patience(self, run: Run) -> None:
        if self._waited < self._patience:
            return
        evaluations = "1 evaluation" if self._waited == 1 else f"{self._waited} evaluations in a row"
        best = "has had no value" if self._best is None else f"was {self._best:.4f} after step {self._best_step}"
        by = f" by more than {self._min_delta}" if self._min_delta else ""
        run.stop(f"held-out {self._metric.name} {best}, and no better{by} in {evaluations}")

    def state_dict(self) -> dict[str, Any]:
        return {
            **self._metric.facts,
            "best": self._best,
            "best_step": self._best_step,
            "evaluations_waited": self._waited,
        }
