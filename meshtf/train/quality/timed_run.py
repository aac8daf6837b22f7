"""One training, timed from its first look at the data until it reaches a target."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from meshtf.errors import NonFiniteError
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.train.configuration import ConfigurationError
from meshtf.train.loop import TrainingRun
from meshtf.train.quality.quality_clock import QualityClock
from meshtf.train.quality.quality_target import QualityTarget
from meshtf.train.quality.run_log import RunLog
from meshtf.train.runs.agreement import Agreement
from meshtf.train.runs.resuming import Start
from meshtf.train.runs.run_folder import RunFolder
from meshtf.train.runs.signals import StopRequest
from meshtf.train.task import WEIGHTS
from meshtf.train.trainer import Trainer
from meshtf.train.training import Training

_NO_COUNT = """\
the task "{task}" does not say how many examples there are to train on, so epochs cannot be counted: it has no \
`num_training_examples`"""

_DIVERGED = """\
{error}
The run with seed {seed} has diverged, so it missed the target."""

_NOT_RESUMED = "A timed run is not resumed. Start again in another folder (--out)."


@dataclasses.dataclass(frozen=True)
class TimedRun:
    """The result of a run.

    Attributes:
      seed: the seed of the training.
      is_reached: whether the quality reached the target.
      seconds: by the clock: until the target was reached, or until the end.
      evaluation_seconds: the seconds among these that evaluations took.
      steps: how many steps were taken.
      epochs: how often the training went through its examples.
      quality: the quality by the last evaluation before the clock stopped. NaN if the run diverged before the first.
      curve: seconds and quality of each evaluation.
    """

    seed: int
    is_reached: bool
    seconds: float
    evaluation_seconds: float
    steps: int
    epochs: float
    quality: float
    curve: tuple[tuple[float, float], ...]


def timed_run(
    configured: Callable[[], Training],
    mesh_impl: MeshImpl,
    target: QualityTarget,
    *,
    seed: int,
    folder: Path,
    stop: StopRequest,
) -> TimedRun | None:
    """Trains until the target is reached, and writes `result.txt`, a log in MLPerf's format, into the folder.

    If there are several processes, the first one writes. Each has a clock of its own, and the same qualities.

    The clock starts after the programs are compiled, on batches of zeros, and the weights have their first values. It
    starts before the task that the run trains on is made, so all reading of data counts.

    Args:
      configured: makes the training anew, with its task.
      mesh_impl: the mesh.
      target: the quality to reach.
      seed: the seed of the training, instead of the configured one.
      folder: where the run goes. It is made.
      stop: a request to stop.

    A run that diverges, with a NaN or an infinity, misses the target. The first process prints where that began.

    Returns None if it was asked to stop.

    Raises:
      ConfigurationError: if evaluations do not have the target's metric.
      CallbackError and others: as `TrainingRun.run`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    agreement = Agreement.of_this_process()
    training = dataclasses.replace(configured(), seed=seed)
    callbacks = [callback for callback in training.callbacks if agreement.is_leader or not callback.is_observer]
    training = dataclasses.replace(training, callbacks=callbacks)
    with agreement.own_folder(RunFolder(folder)) as own_folder:
        return _timed(training, configured, mesh_impl, target, own_folder, stop)


def _timed(
    training: Training,
    configured: Callable[[], Training],
    mesh_impl: MeshImpl,
    target: QualityTarget,
    folder: RunFolder,
    stop: StopRequest,
) -> TimedRun | None:
    log = RunLog(folder.path / "result.txt")
    _log_submission(log, target, training)
    log.start("init_start")
    trainer = Trainer(training, mesh_impl)
    target.check(trainer)
    _compile(trainer)
    log.stop("init_stop")
    own = trainer.training.task
    clock = QualityClock(target, log, training.batch_size, _count(own))
    trainer = trainer.with_training(dataclasses.replace(configured(), seed=training.seed))
    callbacks = [clock, *training.callbacks]
    run = TrainingRun(trainer, folder, Start(), stop, callbacks, how_to_start_again=_NOT_RESUMED)
    try:
        if run.run() is None:
            return None
    except NonFiniteError as error:  # it comes to all processes together
        if Agreement.of_this_process().is_leader:
            told = str(error).removesuffix(_NOT_RESUMED).rstrip()
            print(_DIVERGED.format(error=told, seed=training.seed), file=sys.stderr, flush=True)
    epochs = run.step * training.batch_size / _count(own)
    quality = clock.curve[-1][1] if clock.curve else math.nan
    return TimedRun(
        training.seed,
        clock.is_reached,
        clock.seconds,
        clock.evaluation_seconds,
        run.step,
        epochs,
        quality,
        tuple(clock.curve),
    )


def _log_submission(log: RunLog, target: QualityTarget, training: Training) -> None:
    log.event("submission_benchmark", target.benchmark)
    log.event("submission_division", "open")
    log.event("submission_org", "meshtf")
    log.event("submission_platform", f"{platform.machine()}, {os.cpu_count()} processors")
    log.event("submission_status", "research")
    # Nothing here empties the machine's own cache of files. Each run makes its task anew.
    log.event("cache_clear", value=False)
    log.event("seed", training.seed)
    log.event("global_batch_size", training.batch_size)
    log.event("opt_name", type(training.optimizer).__name__.removesuffix("Optimizer").lower())


def _compile(trainer: Trainer) -> None:
    """Runs both programs once, on zeros, and gives the variables their first values again."""
    trainer.begin()
    trainer.train_step.initialize()
    first = {name: trainer.variables.slices(name).own_blocks() for name in trainer.variables}
    training = trainer.training
    specs = training.task.inputs(training.batch)
    zeros = {name: np.zeros(spec.shape.to_integer_list, spec.dtype.as_numpy_dtype) for name, spec in specs.items()}
    with contextlib.suppress(NonFiniteError):  # it has compiled by then, and assigned nothing
        trainer.train_step(**zeros)
    trainer.evaluation_step(**zeros, **{WEIGHTS: np.ones(training.batch_size, np.float32)})
    for name, blocks in first.items():
        trainer.variables.slices(name).assign_blocks(blocks)


def _count(task: object) -> int:
    count = getattr(task, "num_training_examples", None)
    if count is None:
        raise ConfigurationError(_NO_COUNT.format(task=getattr(task, "name", task)))
    return int(count)
