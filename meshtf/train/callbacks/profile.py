"""Profiles some steps with TensorFlow's profiler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gin
import tensorflow as tf

from meshtf.train.callback import Callback, Outcome, Run
from meshtf.train.callbacks._arguments import check_integer
from meshtf.train.configuration import ConfigurationError
from meshtf.train.monitoring.progress import StepReport
from meshtf.train.trainer import Trainer


@gin.configurable(module="meshtf.train")
class Profile(Callback):
    """Profiles steps, and writes the profile into the run's `tensorboard/`, where TensorBoard's plugin shows it.

    The first step of a process compiles, and a profile of it shows little else.

    Args:
      first_step: the first step that is profiled.
      last_step: the last one. A run that is resumed after the first step profiles nothing.

    Raises:
      ConfigurationError: if the steps are impossible.
    """

    is_observer = True

    def __init__(self, first_step: int = 10, last_step: int = 12) -> None:
        check_integer("Profile.first_step", first_step, least=1)
        check_integer("Profile.last_step", last_step, least=1)
        if last_step < first_step:
            raise ConfigurationError(f"Profile.last_step is {last_step}, before first_step, {first_step}")
        self._first_step, self._last_step = first_step, last_step
        self._is_running = False

    def check(self, trainer: Trainer) -> None:
        num_steps = trainer.training.num_steps
        if self._last_step > num_steps:
            raise ConfigurationError(
                f"Profile.last_step is {self._last_step}, and Training.num_steps {num_steps}: give steps up to it"
            )

    def on_start(self, run: Run, state: Mapping[str, Any]) -> None:
        self._start_before_first(run)

    def on_step(self, run: Run, report: StepReport) -> None:
        self._start_before_first(run)
        if run.step == self._last_step:
            self._stop(run)

    def on_end(self, run: Run, outcome: Outcome) -> None:
        self._stop(run)

    def _start_before_first(self, run: Run) -> None:
        if run.step == self._first_step - 1:
            tf.profiler.experimental.start(str(run.folder.tensorboard))
            self._is_running = True

    def _stop(self, run: Run) -> None:
        if self._is_running:
            self._is_running = False
            tf.profiler.experimental.stop()
            print(f"profile:       steps {self._first_step} to {run.step}, in {run.folder.tensorboard}")
