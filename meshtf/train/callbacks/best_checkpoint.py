"""Keeps the checkpoint that does best on the held-out examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gin

from meshtf.train.callback import Callback, Outcome, Run
from meshtf.train.callbacks._held_out_metric import HeldOutMetric
from meshtf.train.evaluation import Evaluation
from meshtf.train.trainer import Trainer


@gin.configurable(module="meshtf.train")
class BestCheckpoint(Callback):
    """Saves a checkpoint after each evaluation that is the best so far, and keeps it in addition to the newest ones.

    It stays in `checkpoints/`, where every program finds it by `--step`, until a better one is complete.

    Args:
      metric: a metric of the held-out examples, such as "loss".
      mode: "min" if less is better, "max" if more is.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    def __init__(self, metric: str = "loss", mode: str = "min") -> None:
        self._metric = HeldOutMetric("BestCheckpoint", metric, mode)

    def check(self, trainer: Trainer) -> None:
        self._metric.check(trainer)

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        state = self._metric.own_state(state)
        self._best: float | None = state.get("best")
        self._best_step: int | None = state.get("best_step")
        if self._best_step is not None:
            run.keep_checkpoint(self._best_step)

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        value = self._metric.value(evaluation)
        if value is None or not self._metric.is_better(value, self._best):
            return
        if self._best_step is not None:
            run.release_checkpoint(self._best_step)
        self._best, self._best_step = value, run.step
        run.keep_checkpoint(run.step)
        run.save_checkpoint()

    def on_end(self, run: Run, outcome: Outcome) -> None:
        if self._best_step in run.folder.checkpoints().steps():
            print(f"best:          held-out {self._metric.name} {self._best:.4f}, --step={self._best_step}")

    def state_dict(self) -> dict[str, Any]:
        return {**self._metric.facts, "best": self._best, "best_step": self._best_step}
