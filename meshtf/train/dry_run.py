"""A rehearsal: one batch goes through everything that a training does, in a temporary folder."""

from __future__ import annotations

import dataclasses
import itertools
import resource
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.checkpoint import restore
from meshtf.errors import CheckpointError
from meshtf.host_array import host_array
from meshtf.lowering.report.text_table import bytes_text
from meshtf.train.callback import Callback, Run
from meshtf.train.loop import TrainingRun
from meshtf.train.monitoring.metrics import digest_of
from meshtf.train.monitoring.progress import StepReport, duration
from meshtf.train.runs.resuming import RunState, Start
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import StopRequest
from meshtf.train.step_programs import LOSS
from meshtf.train.task import Batch, Batches, Position, Task
from meshtf.train.trainer import Trainer

_NUM_STEPS = 2
_NOT_THE_SAME = """\
a step that was repeated from its checkpoint gave other bits, so a resumed training would differ from an uninterrupted \
one. The model, the optimizer or the task has state that no checkpoint holds."""


@dataclasses.dataclass(frozen=True)
class DryRun:
    """The results of a rehearsal.

    Attributes:
      loss: the loss of the first batch.
      held_out: the means over the first held-out batch, in words.
      seconds_to_compile: seconds of the first step.
      seconds_per_step: seconds of a second step.
      checkpoint_bytes: bytes of one checkpoint.
      planned_bytes: the peak of memory per core, as the report predicts it.
      process_bytes: the peak of this process, as measured.
    """

    loss: float
    held_out: str
    seconds_to_compile: float
    seconds_per_step: float
    checkpoint_bytes: int
    planned_bytes: int
    process_bytes: int

    def __str__(self) -> str:
        return "\n".join(
            [
                f"  a batch        loss {self.loss:.4f}; {duration(self.seconds_to_compile)} to compile",
                f"  an evaluation  {self.held_out}",
                f"  a checkpoint   {bytes_text(self.checkpoint_bytes).strip()}, written and read back",
                f"  a step again   from that checkpoint: the same bits; {self.seconds_per_step:.3g} s",
                f"  memory         {bytes_text(self.planned_bytes).strip()} per core as planned, "
                f"{bytes_text(self.process_bytes).strip()} in this process at most",
            ]
        )


def dry_run(trainer: Trainer, stop: StopRequest) -> DryRun | None:
    """Takes two steps, evaluates a batch, saves, and restores, in a temporary folder. Then it takes the second step
    again.

    Callbacks run, except observers. Returns None if a stop was requested. The trainer's variables change.

    Raises:
      CheckpointError: if the second step gives other bits when it is taken again from the checkpoint of the first.
      MeshtfError, OSError: as a training does.
    """
    with tempfile.TemporaryDirectory(prefix="meshtf_dry_run_") as path:
        folder, rehearsed, seconds = RunFolder(Path(path)), _rehearsed(trainer), _Seconds()
        trainer.begin()
        run = TrainingRun(rehearsed, folder, Start(), stop, [*rehearsed.training.callbacks, seconds])
        evaluation = run.run()
        if evaluation is None:
            return None
        digest = digest_of(trainer.variables)
        seconds_per_step = _taken_again(rehearsed, folder)
        if run.step == _NUM_STEPS and digest_of(trainer.variables) != digest:
            raise CheckpointError(_NOT_THE_SAME)
        return DryRun(
            loss=run.metrics[0][LOSS],
            held_out=str(evaluation),
            seconds_to_compile=seconds.of_first_step,
            seconds_per_step=seconds_per_step,
            checkpoint_bytes=sum(file.stat().st_size for file in folder.checkpoints().path(1).iterdir()),
            planned_bytes=trainer.train_step.report().memory.peak,
            process_bytes=_peak_of_process(),
        )


def _rehearsed(trainer: Trainer) -> Trainer:
    """Returns the same programs for a training of two steps."""
    training = trainer.training
    rehearsal = dataclasses.replace(
        training,
        task=_OneHeldOutBatch(training.task),
        num_steps=_NUM_STEPS,
        evaluate_every=1,
        checkpoint_every_steps=1,
        checkpoint_every_minutes=None,
        keep_checkpoints=_NUM_STEPS,
        log_every=1,
        callbacks=[callback for callback in training.callbacks if not callback.is_observer],
    )
    return trainer.with_training(rehearsal)


def _taken_again(trainer: Trainer, folder: RunFolder) -> float:
    """Takes the second step from the checkpoint of the first. Returns the seconds that it took."""
    saved = folder.checkpoints().open(1)
    saved.verify()
    restore(saved, trainer.programs)
    training = trainer.training
    position = RunState.from_dict(saved.state).position
    batch = next(training.task.training_batches(training.batch_size, training.seed, position))
    begin = time.perf_counter()
    host_array(trainer.train_step(**batch)[LOSS])
    return time.perf_counter() - begin


def _peak_of_process() -> int:
    """Returns the greatest resident size so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Seconds(Callback):
    """Notes how long the first step took."""

    of_first_step = 0.0

    def on_step(self, run: Run, report: StepReport) -> None:
        self.of_first_step = self.of_first_step or report.speed.seconds_per_step


class _OneHeldOutBatch:
    """A task with only one held-out batch."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self.name, self.vocabulary = task.name, task.vocabulary
        self.tokens_per_example = task.tokens_per_example

    def inputs(self, batch: mtf.Dimension) -> dict[str, mtf.TensorSpec]:
        return self._task.inputs(batch)

    def training_batches(self, batch_size: int, seed: int, position: Position | None = None) -> Batches:
        return self._task.training_batches(batch_size, seed, position)

    def evaluation_batches(self, batch_size: int) -> Iterable[Batch]:
        return itertools.islice(self._task.evaluation_batches(batch_size), 1)

    def num_bytes(self, features: Mapping[str, np.ndarray | tf.Tensor]) -> int | None:
        return self._task.num_bytes(features)
