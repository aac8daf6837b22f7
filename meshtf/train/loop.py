"""The training loop: steps, and the work between them on a schedule.

Steps run ahead: the loop starts a step before it has the results of the previous one. But an evaluation or a
checkpoint needs the variables as they are right after its step, so the loop starts no later step until it is done. With
an evaluation every 100 steps, step 101 starts only after the evaluation of step 100.

In a cluster every process runs this loop. Requests of one process (to stop or to save) and its failures reach the
others through `_agree`, which all processes call at the same places. So all processes always do the same work.
"""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from meshtf.checkpoint import BackgroundSaver
from meshtf.errors import CollectiveError, IndexRangeError, MeshtfError, NonFiniteError, ProcessLostError, SaveError
from meshtf.host_array import host_array
from meshtf.train.batches.steps_ahead import StartedStep, StepsAhead
from meshtf.train.callback import Callback, CallbackError, Outcome
from meshtf.train.callbacks import TensorBoard
from meshtf.train.callbacks.delivery import Delivery
from meshtf.train.evaluation import Evaluation
from meshtf.train.monitoring.evaluation_times import SECONDS_OF_EVALUATION, EvaluationTimes, short_duration
from meshtf.train.monitoring.loss_curve import LossCurve
from meshtf.train.monitoring.metrics import DIGEST, MetricsLog, held_out_names
from meshtf.train.monitoring.non_finite import first_non_finite_variable, where_it_began
from meshtf.train.monitoring.progress import ProgressDisplay, Speedometer, StepReport, progress_display
from meshtf.train.monitoring.step_waits import StepWaits
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.resuming import RunState, Start
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import StopRequest
from meshtf.train.step_programs import GRADIENT_NORM, LOSS
from meshtf.train.task import Batches, Position
from meshtf.train.trainer import Trainer
from meshtf.train.training import Training

Value = TypeVar("Value")

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
step {step}: every weight that the model gives is 0 in this batch. Its loss of 0 means nothing, and the step learns \
nothing. Further batches like this are not reported."""


class TrainingRun:
    """Runs a training from a start, and records the results.

    Args:
      trainer: the programs. Their variables have the values of the start, or none yet at step 0.
      folder: the folder for checkpoints, metrics and the loss curve.
      start: where the run begins.
      stop: the request to stop, which is checked after each step.
      callbacks: the callbacks to run. The default is TensorBoard's and those of the training.
      how_to_start_again: the end of errors, if the same command does not resume the run.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        start: Start,
        stop: StopRequest,
        callbacks: Sequence[Callback] | None = None,
        *,
        how_to_start_again: str | None = None,
    ) -> None:
        self.trainer, self.training, self.folder = trainer, trainer.training, folder
        self.step = self.first_step = start.step
        self.reason_to_stop: str | None = None
        self._own_reason_to_stop: str | None = None
        self._how_to_start_again = how_to_start_again
        self._stop, self._start, self._agreement = stop, start, Agreement.of_this_process()
        self._log = MetricsLog(folder.metrics, start.step)
        self._saved_step, self._saved_at = start.step, time.monotonic()
        self._has_looked_at_weights = False
        self._is_save_wanted = False
        self._untold_checkpoints: collections.deque[int] = collections.deque()
        self._shared_failure: CallbackError | ProcessLostError | None = None
        self._evaluated: tuple[int, Evaluation] | None = None
        self.evaluation_times = EvaluationTimes()
        self._speedometer, self._waits = _speedometer(trainer), StepWaits(self._agreement.cluster)
        self._checkpoints = folder.checkpoints(self.training.keep_checkpoints)
        self._curve = LossCurve(str(folder.path), folder.loss_curve)
        self._kept_steps: collections.Counter[int] = collections.Counter()
        self._callbacks = Delivery(
            _default_callbacks(self.training, self._agreement) if callbacks is None else callbacks, self
        )

    @property
    def is_finished(self) -> bool:
        return self.step >= self.training.num_steps or self.reason_to_stop is not None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of metrics so far, including those of earlier runs."""
        return self._log.lines

    def stop(self, reason: str) -> None:
        """Does the same as `Run.stop` of callbacks. In a cluster it takes effect when all processes have agreed."""
        if self._own_reason_to_stop is None:
            self._own_reason_to_stop = reason
            if self._agreement.cluster is None:
                self.reason_to_stop = reason
            print(f"step {self.step}: stopping early: {reason}", flush=True)

    def save_checkpoint(self) -> None:
        """Does the same as `Run.save_checkpoint` of callbacks."""
        self._is_save_wanted = True

    def keep_checkpoint(self, step: int) -> None:
        """Does the same as `Run.keep_checkpoint` of callbacks."""
        self._kept_steps[step] += 1

    def release_checkpoint(self, step: int) -> None:
        """Does the same as `Run.release_checkpoint` of callbacks."""
        self._kept_steps[step] -= 1

    def run(self) -> Evaluation | None:
        """Trains until the last step, or until it is asked to stop, and saves a checkpoint.

        Returns the evaluation after the last step, or None if the run was stopped before.

        Raises:
          NonFiniteError: if a loss, or a variable about to be saved, is not finite. The message says where that began.
          IndexRangeError: if an id or a label of a batch, or of the held-out examples, is outside of its range.
          CollectiveError: if a collective failed. The message says from where the same command resumes.
          CallbackError: if a callback failed. If it failed after a step, a checkpoint was written first. The message
            says from where training resumes.
          SaveError: if a checkpoint could not be written. Earlier ones are unchanged.
          OSError: if another file of the run could not be written.
        """
        try:
            evaluation = self._run()
        except BaseException:
            self._end(Outcome.FAILED)
            raise
        finished = Outcome.FINISHED if self.reason_to_stop is None else Outcome.STOPPED_EARLY
        failure = self._end(Outcome.INTERRUPTED if evaluation is None else finished)
        if failure is not None:
            raise CallbackError(f"{failure}\n{self.how_to_resume()}") from failure.__cause__
        return evaluation

    def _run(self) -> Evaluation | None:
        try:
            self._tell(self._callbacks.start, self._start.callbacks)
            self._agree()
            self._train()
            if self._stop:
                self._draw(is_last=True)
                return None
            return self._evaluate(is_last=True)
        except (CollectiveError, IndexRangeError, NonFiniteError) as error:
            if error is self._shared_failure:
                raise ProcessLostError(f"{error}\n{self.how_to_resume()}") from None
            raise type(error)(_ENDED.format(error=error, resume=self.how_to_resume())) from None
        except CallbackError as error:
            raise CallbackError(f"{error}\n{self.how_to_resume()}") from error.__cause__
        except SaveError as error:
            raise SaveError(f"{error}\n{self.how_to_resume()}") from error
        except OSError as error:
            raise OSError(f"{error}. {self.how_to_resume()}") from error

    def _end(self, outcome: Outcome) -> CallbackError | None:
        """Calls `on_end` of the callbacks. A failure there must not hide how the run ended."""
        try:
            self._callbacks.end(outcome)
        except CallbackError as failure:
            if outcome is not Outcome.FAILED:
                return failure
            print(failure, flush=True)
        return None

    def _train(self) -> None:
        training = self.training
        if _is_due(self.step, training.evaluate_every) and not self.is_finished:
            self._evaluate()  # the previous run was stopped before this evaluation
        if self.is_finished:
            return
        batches = self.trainer.batches(self._start.position)
        failure: CallbackError | ProcessLostError | None = None
        with BackgroundSaver(self._checkpoints) as saver:
            try:
                with progress_display(training.num_steps, self.step) as display:
                    self._take_steps(batches, display, saver)
            except (CallbackError, ProcessLostError) as error:
                if self._agreement.cluster is not None and error is not self._shared_failure:
                    raise  # the other processes do not know of it yet, and do not save
                failure = error
            self._save(saver, batches.position)
            saver.wait()
            if failure is not None:
                raise failure
            self._tell_of_checkpoint(saver)

    def _take_steps(self, batches: Batches, display: ProgressDisplay, saver: BackgroundSaver) -> None:
        ahead = StepsAhead(self.trainer.train_step, batches)
        try:
            while (most := self._steps_to_start(ahead)) or ahead:
                with self._speedometer.step(), self._waits.step():
                    results = self._take_step(ahead, most)
                report = self._report(results)
                display.show(report)
                if report.is_logged:
                    self._log.write(report.step, report.values, report.vectors)
                self._tell(self._callbacks.step, report)
                self._do_what_is_due(ahead, batches, saver)
        except (CallbackError, ProcessLostError) as error:
            # If only this process knows of the failure, the others wait for its next meeting, and not for these steps.
            if self._agreement.cluster is None or error is self._shared_failure:
                self._finish(ahead)
            raise

    def _steps_to_start(self, ahead: StepsAhead) -> int:
        """Returns how many steps may be in progress. None may go beyond a step after which an evaluation or a
        checkpoint is due.
        """
        if self.is_finished or self._stop or (self._is_save_wanted and ahead):
            return 0
        training = self.training
        every = [n for n in (training.evaluate_every, training.checkpoint_every_steps) if n is not None]
        return min([training.num_steps - self.step, *(n - self.step % n for n in every)])

    def _do_what_is_due(self, ahead: StepsAhead, batches: Batches, saver: BackgroundSaver) -> None:
        """Runs the evaluations and checkpoints that are due between two steps, once all started steps are done."""
        if _is_due(self.step, self.training.evaluate_every):
            self._agree()
            if not self._stop and not self.is_finished:
                self._evaluate()
        self._agree()
        if self._is_checkpoint_due() and not ahead:
            self._save(saver, batches.position)
        self._tell_of_checkpoint(saver)

    def _finish(self, ahead: StepsAhead) -> None:
        """Waits for the steps that have been started. Callbacks do not run for them."""
        while ahead:
            report = self._report(self._take_step(ahead, 0))
            if report.is_logged:
                self._log.write(report.step, report.values, report.vectors)

    def _take_step(self, ahead: StepsAhead, most: int) -> dict[str, np.ndarray]:
        """Starts steps until `most` are under way, and waits for the first of them."""
        ahead.start(most)
        step = ahead.oldest()
        try:
            results = self._results(step)
        except (CollectiveError, IndexRangeError) as error:
            raise type(error)(f"step {self.step + 1}: {error}") from None
        self.step += 1
        self._agreement.reached(self.step)
        if not (results[LOSS] or self._has_looked_at_weights):
            self._has_looked_at_weights = True
            if not self.trainer.counts(self.trainer.whole_batch(step.features, step.position)):
                print(_NOTHING_COUNTS.format(step=self.step), flush=True)
        return results

    def _results(self, step: StartedStep) -> dict[str, np.ndarray]:
        try:
            return {name: host_array(value) for name, value in step.results().items()}
        except NonFiniteError as error:
            whole = self.trainer.whole_batch(step.features, step.position)
            raise NonFiniteError(self._where_it_began(error, whole)) from None

    def _report(self, results: Mapping[str, np.ndarray]) -> StepReport:
        scalars = {name: float(x) for name, x in results.items() if not x.ndim}
        loss = scalars.pop(LOSS)
        unseen = {GRADIENT_NORM, *self.trainer.train_step.graph.summaries}
        is_logged = _is_due(self.step, self.training.log_every) or self.step in (1, self.training.num_steps)
        waits = self._waits.by_process() if is_logged else {}
        return StepReport(
            step=self.step,
            loss=loss,
            speed=self._speedometer.speed,
            scalars={name: value for name, value in scalars.items() if name not in unseen},
            vectors={name: x for name, x in results.items() if x.ndim},
            summaries={**{name: value for name, value in scalars.items() if name in unseen}, **waits},
            is_logged=is_logged,
            evaluation_seconds_left=self.evaluation_times.seconds_left(
                self.step, self.training.num_steps, self.training.evaluate_every
            ),
        )

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
        """Returns a sentence on what the same command would do now, or how to start again."""
        if self._how_to_start_again is not None:
            return self._how_to_start_again
        steps = self._checkpoints.steps()
        if not steps:
            return "There is no checkpoint yet; the same command starts again."
        place = self._checkpoints.place(steps[-1])
        return f"The same command resumes from the checkpoint of step {steps[-1]}, {place}."

    def _evaluate(self, *, is_last: bool = False) -> Evaluation | None:
        """Evaluates, unless the result is written and nothing needs it again. Returns None then, or if stopped."""
        is_written = self._log.has_evaluation(self.step)
        if is_written and not is_last and not self._callbacks.needs_evaluation(self.step):
            return None
        evaluation = self._measured()
        if evaluation is None:
            return None
        held_out = {} if is_written else held_out_names(evaluation.means)
        if held_out:
            held_out[SECONDS_OF_EVALUATION] = round(evaluation.seconds, 3)
        vectors = {} if is_written else held_out_names(evaluation.vectors)
        digest = {DIGEST: self.digest} if is_last and not self._log.has_digest(self.step) else {}
        if held_out or digest:  # in one line, where both are new
            self._log.write(self.step, {**held_out, **digest}, vectors)
        if not is_last:
            print(f"step {self.step}: held out: {evaluation} in {short_duration(evaluation.seconds)}", flush=True)
        self._draw(is_last=is_last)
        self._tell(functools.partial(self._callbacks.evaluation, is_written=is_written), evaluation)
        if is_last:
            self._agree()
        return evaluation

    def _measured(self) -> Evaluation | None:
        """Returns the evaluation after this step, computed once, or None if it was stopped."""
        if self._evaluated is not None and self._evaluated[0] == self.step:
            return self._evaluated[1]
        try:
            evaluation = self.trainer.evaluate(lambda: bool(self._stop))
        except CollectiveError as error:
            raise CollectiveError(f"evaluation after step {self.step}: {error}") from None
        if evaluation is not None:
            self._evaluated = (self.step, evaluation)
            self.evaluation_times.seconds.append(evaluation.seconds)
        return evaluation

    @functools.cached_property
    def digest(self) -> str:
        """The hash of all variables at the end of the run, computed once."""
        return self._agreement.digest_of(self.trainer.variables, lambda: self._checkpoints.open(self.step))

    def _draw(self, *, is_last: bool) -> None:
        if not self._agreement.is_leader:
            return
        problem = self._curve.draw(self._log.lines, is_last=is_last)
        if problem is not None and self.is_finished:
            print(problem)

    def _tell(self, tell: Callable[[Value], None], value: Value) -> None:
        """Delivers to callbacks an event that happens in every process. In a cluster, a failure ends all
        processes at the next `_agree`.
        """
        try:
            tell(value)
        except CallbackError as failure:
            if self._agreement.cluster is None:
                raise
            self._shared_failure = failure

    def _agree(self) -> None:
        """Passes the requests of each process's callbacks to all processes. If one process has failed, all end.

        Raises:
          CallbackError: if the failure is one of this process's.
          ProcessLostError: if the failure is another process's. The message names the process.
        """
        minutes = self.training.checkpoint_every_minutes
        is_time = minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes
        save = "save" if self._is_save_wanted or is_time else None
        failure = self._shared_failure and self._agreement.signed(str(self._shared_failure))
        agreed = self._agreement.first_wishes({"save": save, "stop": self._own_reason_to_stop, "failure": failure})
        if agreed["failure"] is not None:
            self._shared_failure = self._shared_failure or ProcessLostError(agreed["failure"])
            raise self._shared_failure
        self._is_save_wanted, self.reason_to_stop = agreed["save"] is not None, agreed["stop"]
        if self.reason_to_stop is not None:
            self.stop(self.reason_to_stop)

    def _is_checkpoint_due(self) -> bool:
        return self._is_save_wanted or _is_due(self.step, self.training.checkpoint_every_steps)

    def _save(self, saver: BackgroundSaver, position: Position) -> None:
        self._is_save_wanted = False
        if self.step == self._saved_step:
            return
        name = self._agreement.first_text(first_non_finite_variable(self.trainer.variables))
        if name is not None:
            raise NonFiniteError(_VARIABLE_NOT_FINITE.format(step=self.step, name=name))
        state = RunState.of(self.training, position, self._callbacks.state_dict()).to_dict()
        kept = frozenset(+self._kept_steps)
        # A released checkpoint is deleted only when this one is whole: until then a resumed run would need it.
        self._checkpoints.kept_steps |= kept
        saver.save(self.step, self.trainer.variables, state)
        self._checkpoints.kept_steps = kept
        self._saved_step, self._saved_at = self.step, time.monotonic()
        self._untold_checkpoints.append(self.step)

    def _tell_of_checkpoint(self, saver: BackgroundSaver) -> None:
        """Calls `on_checkpoint` for the checkpoints that are complete by now."""
        while self._untold_checkpoints and not (saver.is_writing and self._untold_checkpoints[0] == self._saved_step):
            path = self._checkpoints.path(self._untold_checkpoints.popleft())
            if path.exists():
                self._callbacks.checkpoint(path)


def _default_callbacks(training: Training, agreement: Agreement) -> list[Callback]:
    if not agreement.is_leader:
        return [callback for callback in training.callbacks if not callback.is_observer]
    has_board = any(isinstance(callback, TensorBoard) for callback in training.callbacks)
    return [*([] if has_board else [TensorBoard()]), *training.callbacks]


def _is_due(step: int, every: int | None) -> bool:
    return every is not None and step > 0 and step % every == 0


def _speedometer(trainer: Trainer) -> Speedometer:
    training = trainer.training
    tokens, peak = training.tokens_per_step, training.peak_flops_per_core
    flops_of_peak = None if peak is None else trainer.train_step.report().flops_per_core / peak
    return Speedometer(tokens or training.batch_size, "examples" if tokens is None else "tokens", flops_of_peak)
