"""The training loop: steps, and what is done between them on a schedule."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from meshtf.checkpoint import BackgroundSaver
from meshtf.errors import CollectiveError, MeshtfError, NonFiniteError, SaveError
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.loss_curve import draw_loss_curve
from meshtf.train.monitoring.metrics import DIGEST, HELD_OUT, MetricsLog, digest_of
from meshtf.train.monitoring.non_finite import first_non_finite_variable, where_it_began
from meshtf.train.monitoring.progress import ProgressDisplay, Speedometer, StepReport, progress_display
from meshtf.train.monitoring.tensorboard import Board
from meshtf.train.resuming import RunState, Start
from meshtf.train.run_folder import RunFolder
from meshtf.train.signals import StopRequest
from meshtf.train.step_programs import GRADIENT_NORM, LOSS
from meshtf.train.task import Batches, Position
from meshtf.train.trainer import Trainer

_ENDED = """\
{error}
Nothing more was saved. {resume}"""

_NOT_FINITE = """\
step {step}: {error}. Training has stopped before the update.
{where}"""

_VARIABLE_NOT_FINITE = """\
step {step}: variable "{name}" holds a NaN or an infinity, although the loss before was finite.
With Training.check_gradients = True training stops before the update that does this, and says where it began."""

_NOTHING_COUNTS = """\
step {step}: nothing counts for the loss in this batch, since every weight that the model gives is 0: a loss of 0 says \
nothing, and nothing is learnt. Other such batches are not told of."""


class TrainingRun:
    """Takes the steps of a training from a start on, and writes down what comes of it.

    Args:
      trainer: whose variables are those of the start; none yet, at step 0.
      folder: for checkpoints, metrics and the loss curve.
      start: where the run begins.
      stop: is looked at after each step.
      board: takes curves.
    """

    def __init__(self, trainer: Trainer, folder: RunFolder, start: Start, stop: StopRequest, board: Board) -> None:
        self.trainer, self.training = trainer, trainer.training
        self.step = start.step
        self._folder, self._stop, self._board = folder, stop, board
        self._log = MetricsLog(folder.metrics, start.step)
        self._start, self._saved_step, self._saved_at = start, start.step, time.monotonic()
        self._has_looked_at_weights = False
        self._speedometer = _speedometer(trainer)
        self._checkpoints = folder.checkpoints(self.training.keep_checkpoints)

    @property
    def is_finished(self) -> bool:
        return self.step >= self.training.num_steps

    def run(self) -> Evaluation | None:
        """Trains until the last step or until it is asked to stop, and saves a checkpoint.

        Returns the evaluation after the last step, None if the run was stopped before.

        Raises:
          NonFiniteError: a loss, or a variable about to be saved, is not finite; says where that began.
          CollectiveError: a collective failed; says from where the same command resumes.
          SaveError: a checkpoint could not be written; those before are as they were.
          OSError: another file of the run could not be.
        """
        try:
            self._train()
            if self._stop:
                self._draw()
                return None
            return self._evaluate(is_last=True)
        except (CollectiveError, NonFiniteError) as error:
            raise type(error)(_ENDED.format(error=error, resume=self.how_to_resume())) from None
        except SaveError as error:
            raise SaveError(f"{error}\n{self.how_to_resume()}") from error
        except OSError as error:
            raise OSError(f"{error}. {self.how_to_resume()}") from error

    def _train(self) -> None:
        training = self.training
        if _is_due(self.step, training.evaluate_every) and not self.is_finished:
            self._evaluate()  # the run before was stopped in the step's place for it
        if self.is_finished:
            return
        batches = training.task.training_batches(training.batch_size, training.seed, self._start.position)
        with BackgroundSaver(self._checkpoints) as saver:
            with progress_display(training.num_steps, self.step) as display:
                self._take_steps(batches, display, saver)
            self._save(saver, batches.position)
            saver.wait()

    def _take_steps(self, batches: Batches, display: ProgressDisplay, saver: BackgroundSaver) -> None:
        training = self.training
        while not (self.is_finished or self._stop):
            with self._speedometer.step():
                results = self._take_step(next(batches))
            scalars = {name: float(x) for name, x in results.items() if not x.ndim}
            vectors = {name: x for name, x in results.items() if x.ndim}
            shown = self._scalars_of_the_model(scalars)
            report = StepReport(self.step, scalars[LOSS], self._speedometer.speed, shown, vectors)
            display.show(report)
            if self._is_logged():
                self._write(report, scalars)
            if _is_due(self.step, training.evaluate_every) and not self._stop and not self.is_finished:
                self._evaluate()
            if self._is_checkpoint_due():
                self._save(saver, batches.position)

    def _take_step(self, features: Mapping[str, Any]) -> dict[str, np.ndarray]:
        try:
            results = {name: np.asarray(value) for name, value in self.trainer.train_step(**features).items()}
        except NonFiniteError as error:
            raise NonFiniteError(self._where_it_began(error, features)) from None
        except CollectiveError as error:
            raise CollectiveError(f"step {self.step + 1}: {error}") from None
        self.step += 1
        if not (results[LOSS] or self._has_looked_at_weights):
            self._has_looked_at_weights = True
            if not self.trainer.counts(features):
                print(_NOTHING_COUNTS.format(step=self.step), flush=True)
        return results

    def _scalars_of_the_model(self, results: Mapping[str, float]) -> dict[str, float]:
        others = {LOSS, GRADIENT_NORM, *self.trainer.train_step.graph.summaries}
        return {name: value for name, value in results.items() if name not in others}

    def _where_it_began(self, error: NonFiniteError, features: Mapping[str, Any]) -> str:
        fact = str(error).splitlines()[0]
        print(f"step {self.step + 1}: {fact}; looking for where it began", flush=True)
        try:
            where = where_it_began(self.training, self.trainer.mesh_impl, self.trainer.variables, features)
        except MeshtfError as failure:
            where = f"Where it began could not be found: {failure}"
        where = where or "Computed again, everything was finite."
        return _NOT_FINITE.format(step=self.step + 1, error=fact, where=where)

    def how_to_resume(self) -> str:
        """What the same command would do now."""
        steps = self._checkpoints.steps()
        if not steps:
            return "There is no checkpoint yet; the same command starts again."
        return f"The same command resumes from the checkpoint of step {steps[-1]}, {self._checkpoints.path(steps[-1])}."

    def _is_logged(self) -> bool:
        return _is_due(self.step, self.training.log_every) or self.step in (1, self.training.num_steps)

    def _write(self, report: StepReport, scalars: Mapping[str, float]) -> None:
        speed = report.speed
        values = dict(scalars)
        if not speed.is_compilation:
            values[f"{speed.unit}_per_second"] = round(speed.per_second, 1)
        if speed.share_of_peak is not None and not speed.is_compilation:
            values["share_of_peak_flops"] = round(speed.share_of_peak, 4)
        self._log.write(report.step, values, report.vectors)
        self._board.scalars(report.step, values)
        self._board.histograms(report.step, report.vectors)

    def _evaluate(self, *, is_last: bool = False) -> Evaluation | None:
        """Evaluates, unless this step has been; None then, and if it was stopped."""
        is_written = self._log.has_evaluation(self.step)
        if is_written and not is_last:
            return None
        try:
            evaluation = self.trainer.evaluate(lambda: bool(self._stop))
        except CollectiveError as error:
            raise CollectiveError(f"evaluation after step {self.step}: {error}") from None
        if evaluation is None:
            return None
        held_out = {f"{HELD_OUT}{name}": value for name, value in evaluation.means.items()}
        vectors = {f"{HELD_OUT}{name}": x for name, x in evaluation.vectors.items()}
        if not is_written:
            self._log.write(self.step, held_out, vectors)
            self._board.scalars(self.step, held_out)
            self._board.histograms(self.step, vectors)
        if is_last and not self._log.has_digest(self.step):
            self._log.write(self.step, {DIGEST: digest_of(self.trainer.variables)})
        if not is_last:
            print(f"step {self.step}: held out: {evaluation}", flush=True)
        self._draw()
        return evaluation

    def _draw(self) -> None:
        problem = draw_loss_curve(self._log.lines, str(self._folder.path), self._folder.loss_curve)
        if problem is not None and self.is_finished:
            print(problem)

    def _is_checkpoint_due(self) -> bool:
        training = self.training
        minutes = training.checkpoint_every_minutes
        is_time = minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes
        return is_time or _is_due(self.step, training.checkpoint_every_steps)

    def _save(self, saver: BackgroundSaver, position: Position) -> None:
        if self.step == self._saved_step:
            return
        name = first_non_finite_variable(self.trainer.variables)
        if name is not None:
            raise NonFiniteError(_VARIABLE_NOT_FINITE.format(step=self.step, name=name))
        saver.save(self.step, self.trainer.variables, RunState.of(self.training, position).to_dict())
        self._saved_step, self._saved_at = self.step, time.monotonic()


def _is_due(step: int, every: int | None) -> bool:
    return every is not None and step > 0 and step % every == 0


def _speedometer(trainer: Trainer) -> Speedometer:
    training = trainer.training
    tokens, peak = training.tokens_per_step, training.peak_flops_per_core
    flops_of_peak = None if peak is None else trainer.train_step.report().flops_per_core / peak
    return Speedometer(tokens or training.batch_size, "examples" if tokens is None else "tokens", flops_of_peak)
