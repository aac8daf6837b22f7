"""The folder of a run: what is in it, and how another program takes up what was trained.

A program that decodes, say:

    run = RunFolder.existing(path)
    training = run.read_training()
    program = mtf.function(decode, mesh_impl, inputs=..., variable_dtype=training.variable_dtype)
    step = run.restore(program)
"""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import json
import platform
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint, restore
from meshtf.errors import CheckpointError, DamagedCheckpointError
from meshtf.files.replaced_file import replace_file
from meshtf.files.unlinked_file import open_for_lock
from meshtf.train._foreign_configuration import check_foreign
from meshtf.train.configuration import OPERATIVE_CONFIG, ConfigurationError, read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.run_path import run_path
from meshtf.train.saved_weights import Weights, averages_in
from meshtf.train.training import Training, configured_training

_PACKAGES = ("meshtf", "tensorflow", "numpy")

_NO_RUN = """\
{folder} is not the folder of a run: it has no {missing}.
meshtf-train writes one, by default runs/<name of the gin file>; the current folder is {here}."""

_IN_USE = """\
another training runs in {folder}; wait for its end, or give another --model_dir."""

_NO_CHECKPOINT = """\
{folder} has no checkpoint; meshtf-train writes one at the end, and on the way as
Training.checkpoint_every_steps and Training.checkpoint_every_minutes say."""

_ALL_DAMAGED = """\
none of the checkpoints in {folder} can be read: those of the steps {steps} are damaged, each as said above."""

_SUPERSEDED = "superseded_"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Paths of what a run leaves behind.

    Attributes:
      path: of the folder.
      checkpoints_path: of its checkpoints, where they are elsewhere.
    """

    path: Path
    checkpoints_path: Path | None = None

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of a run that was started before.

        Raises:
          ConfigurationError: there is none.
        """
        folder = run_path(path)
        try:
            is_there, is_folder = (folder / OPERATIVE_CONFIG).is_file(), folder.is_dir()
        except OSError as error:
            raise ConfigurationError(f"the model folder {folder} cannot be looked at: {error}") from None
        if not is_there:
            missing = OPERATIVE_CONFIG if is_folder else "such folder"
            raise ConfigurationError(_NO_RUN.format(folder=folder, missing=missing, here=Path.cwd()))
        return cls(folder)

    @classmethod
    def made(cls, path: str | Path) -> RunFolder:
        """The folder of a run, made where it is not there.

        Raises:
          ConfigurationError: it cannot be made.
        """
        folder = run_path(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"the model folder {folder} cannot be made: {error}") from error
        return cls(folder)

    @property
    def operative_config(self) -> Path:
        """Every parameter that was used: a gin file that gives the same run again."""
        return self.path / OPERATIVE_CONFIG

    @property
    def report(self) -> Path:
        """Layouts, memory and every collective of the training step."""
        return self.path / "report.txt"

    @property
    def versions(self) -> Path:
        """On what it ran, as JSON."""
        return self.path / "versions.json"

    @property
    def metrics(self) -> Path:
        """One JSON object a line, with its step."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """What meshtf-eval found, one JSON object a line."""
        return self.path / "evaluations.jsonl"

    @property
    def loss_curve(self) -> Path:
        return self.path / "loss.png"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def checkpoints(self, keep: int | None = None) -> CheckpointFolder:
        """The checkpoints, of which `save` keeps so many."""
        return CheckpointFolder(self.checkpoints_path or self.path / "checkpoints", keep)

    def read_training(self, parameters: Sequence[str | Parameter] = (), *, trust_config: bool = False) -> Training:
        """The training as it was configured, with gin bindings that override parts of it.

        Args:
          parameters: the bindings.
          trust_config: whether the configuration may execute what came with it: see "A run of someone else" in
            docs/training.md.

        Raises:
          ConfigurationError: the configuration names what there is not any more, or a binding is wrong; or it would
            execute what it is not trusted with.
        """
        if not trust_config:
            check_foreign(self.operative_config)
        read_configuration([self.operative_config], parameters)
        return configured_training()

    def checkpoint(self, step: int | None = None) -> SavedCheckpoint:
        """The checkpoint of a step, or the newest that is whole.

        Raises:
          ConfigurationError: there is none at all. CheckpointError: there is none of this step, or all are damaged.
          OSError: one is there and cannot be read.
        """
        checkpoints = self.checkpoints()
        if step is not None:
            return checkpoints.open(step)
        saved = checkpoints.newest_readable()
        if saved is not None:
            return saved
        if steps := checkpoints.steps():
            raise CheckpointError(_ALL_DAMAGED.format(folder=checkpoints.folder, steps=", ".join(map(str, steps))))
        raise ConfigurationError(_NO_CHECKPOINT.format(folder=self.path))

    def restore(
        self, *programs: mtf.Function, step: int | None = None, weights: Weights | str = Weights.TRAINED
    ) -> int:
        """Gives the variables of programs, which share a store, their values in a checkpoint; returns its step.

        What else the checkpoint holds, such as an optimizer's state, is left aside.

        Args:
          programs: of the model that was trained.
          step: which checkpoint; the newest that is whole by default.
          weights: "trained", or "average" for their means over the steps of training.

        Raises:
          ConfigurationError, CheckpointError: there is no such checkpoint, it is of another model, or it has no
            averages.
          OSError: it is there and cannot be read.
        """
        saved = self.checkpoint(step)
        renamed = averages_in(saved, programs[0]) if Weights(weights) is Weights.AVERAGE else {}
        try:
            restore(saved, list(programs), ignore_unused=True, renamed=renamed)
        except DamagedCheckpointError:
            if step is not None or saved.folder.exists():
                raise
            # A training that runs meanwhile has deleted it, and there are newer ones.
            return self.restore(*programs, weights=weights)
        return saved.step

    def lock(self) -> BinaryIO:
        """Keeps other trainings out of the folder until what it returns is closed, or the process has ended.

        Raises:
          ConfigurationError: another training runs in the folder.
          OSError: a link, or no file, stands in the lock's place.
        """
        file = open_for_lock(self.path / ".lock")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConfigurationError(_IN_USE.format(folder=self.path)) from None
        except OSError:  # a file system without locks
            pass
        return file

    def set_aside(self) -> RunFolder | None:
        """Moves the run that is there into a folder of its own inside, `superseded_1` or the next that is free.

        Returns:
          It, as a run that programs read as before; None where there was none.
        """
        names = [self.checkpoints().folder, self.metrics, self.evaluations, self.loss_curve, self.tensorboard]
        there = [path for path in (*names, self.report, self.versions, self.operative_config) if path.exists()]
        if not there:
            return None
        aside = next(f for n in itertools.count(1) if not (f := self.path / f"{_SUPERSEDED}{n}").exists())
        aside.mkdir()
        for path in there:
            path.rename(aside / path.name)
        return RunFolder(aside)

    def write_versions(self) -> None:
        """Writes on what this process runs, and its command."""
        facts = {name: _version(name) for name in _PACKAGES}
        facts |= {"python": platform.python_version(), "platform": platform.platform(), "command": sys.argv}
        replace_file(self.versions, (json.dumps(facts, indent=2) + "\n").encode())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
