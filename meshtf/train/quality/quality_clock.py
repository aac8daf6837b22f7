"""A callback that stops a training, and its clock, when an evaluation reaches the target."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from meshtf.train.callback import Callback, Outcome, Run
from meshtf.train.evaluation import Evaluation
from meshtf.train.quality.quality_target import QualityTarget
from meshtf.train.quality.run_log import RunLog


class QualityClock(Callback):
    """Logs the epochs and evaluations of a run, and ends it when the target is reached.

    The clock starts when this object is made: before anything reads the data. Evaluations count.

    Args:
      target: the quality to reach.
      log: the log of the run.
      examples_per_step: the examples of a batch.
      train_examples: the number of examples to train on.

    Attributes:
      curve: seconds and quality of each evaluation.
      seconds: how long it took to reach the target, or until the end if it was not reached.
      evaluation_seconds: the seconds among these that evaluations took.
    """

    def __init__(self, target: QualityTarget, log: RunLog, examples_per_step: int, train_examples: int) -> None:
        self.curve: list[tuple[float, float]] = []
        self.is_reached = False
        self.seconds = self.evaluation_seconds = 0.0
        self._target, self._log = target, log
        self._examples_per_step, self._train_examples = examples_per_step, train_examples
        self._first_step, self._has_stopped = 0, False
        self._began = time.perf_counter()
        log.start("run_start")
        log.event("train_samples", train_examples)

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        self._log.start("block_start", **self._block(run))

    def on_evaluation(self, run: Run, evaluation: Evaluation) -> None:
        if self._has_stopped:
            return
        quality = self._target.quality_of(evaluation)
        self.seconds = time.perf_counter() - self._began
        self.evaluation_seconds += evaluation.seconds
        self.curve.append((self.seconds, quality))
        self._log_evaluation(run, evaluation, quality)
        self.is_reached = self._target.is_reached_by(quality)
        if self.is_reached:
            self._stop("success")
            run.stop(f"{self._target.metric} is {quality:.4f}, and {self._target} was wanted")
        elif run.step < run.trainer.training.num_steps:
            self._log.start("block_start", **self._block(run))

    def on_end(self, run: Run, outcome: Outcome) -> None:
        if not self._has_stopped:
            self.seconds = time.perf_counter() - self._began
            self._stop("aborted")

    def _log_evaluation(self, run: Run, evaluation: Evaluation, quality: float) -> None:
        if len(self.curve) == 1:
            self._log.event("eval_samples", evaluation.num_examples)
        epoch = self._epochs(run.step)
        samples = run.step * self._examples_per_step
        first = self._epochs(self._first_step)
        self._log.stop("block_stop", seconds_ago=evaluation.seconds, first_epoch_num=first)
        self._log.start("eval_start", seconds_ago=evaluation.seconds, epoch_num=epoch, samples_count=samples)
        self._log.event("eval_accuracy", quality, epoch_num=epoch, samples_count=samples)
        self._log.stop("eval_stop", epoch_num=epoch, samples_count=samples)
        self._first_step = run.step

    def _stop(self, status: str) -> None:
        self._has_stopped = True
        self._log.stop("run_stop", status=status)

    def _block(self, run: Run) -> dict[str, float]:
        training = run.trainer.training
        every = training.evaluate_every or training.num_steps
        steps = min(every, training.num_steps - run.step)
        return {"first_epoch_num": self._epochs(run.step), "epoch_count": self._epochs(steps)}

    def _epochs(self, steps: int) -> float:
        return round(steps * self._examples_per_step / self._train_examples, 4)
