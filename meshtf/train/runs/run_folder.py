"""The folder of a run: its files, and how another program loads the trained weights.

A program that decodes does this, for example:

    run = RunFolder.existing(path)
    training = run.read_training()
    program = mtf.function(decode, mesh_impl, inputs=..., variable_dtype=training.variable_dtype)
    step = run.restore(program)
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import itertools
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import BinaryIO

import meshtf as mtf
from meshtf.checkpoint import CheckpointFolder, SavedCheckpoint, restore
from meshtf.checkpoint.remote_checkpoints import RemoteCheckpoints
from meshtf.errors import CheckpointError, DamagedCheckpointError, OtherModelError
from meshtf.files.remote.remote_folder import RemoteFolder
from meshtf.files.remote.working_folder import PassingFolder, lasting_folder
from meshtf.files.replaced_file import replace_file
from meshtf.files.unlinked_file import open_for_lock
from meshtf.train.configuration import OPERATIVE_CONFIG, ConfigurationError, read_configuration
from meshtf.train.gin_files.bindings import Parameter
from meshtf.train.runs._foreign_configuration import check_foreign
from meshtf.train.runs.run_path import run_path
from meshtf.train.runs.run_storage import CHECKPOINTS, SUPERSEDED, RunStorage
from meshtf.train.runs.saved_weights import Weights, sources_in
from meshtf.train.training import Training, configured_training
from meshtf_programs.packaged_configurations import shown
from meshtf_programs.strict_json import json_text
from meshtf_programs.user_paths import user_path

_PACKAGES = ("meshtf", "tensorflow", "numpy")

_NO_RUN = """\
{folder} is not the folder of a run: {missing}.
meshtf-train writes one, by default runs/<name of the gin file>; the current folder is {here}."""

_IN_USE = """\
another training is running in {folder}; wait until it ends, or give another {flag}."""

_NO_CHECKPOINT = """\
{folder} has no checkpoint; meshtf-train writes one at the end, and others during training as
Training.checkpoint_every_steps and Training.checkpoint_every_minutes say."""

_OTHER_MODEL = """\
The run's configuration describes a different model from the trained one. Leave out the --gin_param that changes it,
or restore the operative_config.gin of the training."""

_ALL_DAMAGED = """\
none of the checkpoints in {folder} can be read: the ones of the steps {steps} are damaged, as the lines above say."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths of a run's files.

    Attributes:
      path: the folder.
      checkpoints_path: the folder of its checkpoints, if they are elsewhere.
      storage: the remote storage of the run, if it has one. Then `path` only holds files before they are sent.
    """

    path: Path
    checkpoints_path: Path | None = None
    storage: RunStorage | None = None

    @classmethod
    def existing(cls, path: str | Path | RemoteFolder) -> RunFolder:
        """Opens the folder of a run that was started before.

        If the run is on remote storage, its small files are copied into a temporary folder as they are now.

        Raises:
          ConfigurationError: if there is none.
        """
        folder = run_path(path)
        if isinstance(folder, RemoteFolder):
            return cls._existing_remote(folder)
        try:
            is_there, is_folder = (folder / OPERATIVE_CONFIG).is_file(), folder.is_dir()
        except OSError as error:
            raise ConfigurationError(f"the model folder {folder} cannot be accessed: {error}") from None
        if not is_there:
            missing = f"it has no {OPERATIVE_CONFIG}" if is_folder else "there is no such folder"
            raise ConfigurationError(_NO_RUN.format(folder=folder, missing=missing, here=Path.cwd()))
        return cls(folder)

    @classmethod
    def _existing_remote(cls, remote: RemoteFolder) -> RunFolder:
        passing = PassingFolder()
        storage = RunStorage(remote, passing)
        try:
            storage.fetch(passing.path)
        except OSError as error:
            raise ConfigurationError(f"the model folder {remote} cannot be accessed: {error}") from None
        if not (passing.path / OPERATIVE_CONFIG).is_file():
            raise ConfigurationError(
                _NO_RUN.format(folder=remote, missing=f"it has no {OPERATIVE_CONFIG}", here=Path.cwd())
            )
        return cls(passing.path, storage=storage)

    @classmethod
    def made(cls, path: str | Path | RemoteFolder, working: Path = Path("~/.cache/meshtf/runs")) -> RunFolder:
        """Opens the folder of a run, and makes it if it is missing.

        Args:
          path: the folder.
          working: the folder in which a run on remote storage keeps its files before they are sent.

        Raises:
          ConfigurationError: if it cannot be made.
        """
        place = run_path(path)
        is_remote = isinstance(place, RemoteFolder)
        folder = lasting_folder(user_path(working), place) if is_remote else place
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"the model folder {folder} cannot be made: {error}") from error
        return cls(folder, storage=RunStorage(place) if is_remote else None)

    def fetch(self) -> None:
        """Replaces this machine's copy of a run by the files on its remote storage. Does nothing for a run without one.

        Raises:
          OSError: if the storage cannot be read, or the folder not written.
        """
        if self.storage is not None:
            self.storage.fetch(self.path)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Marks this process as the one that trains in the folder. At the end, remote storage gets all new files.

        Raises:
          OSError: if the storage cannot be written. After another error, this failure is only printed.
        """
        if self.storage is None:
            yield
            return
        self.storage.claim(self.path)
        try:
            yield
        except BaseException:
            try:
                self.send()
            except (OSError, ConfigurationError) as error:
                print(f"the new files of {self.path} are not in {self.place}: {error}", flush=True)
            raise
        self.send()

    def send(self) -> None:
        """Writes changed files to the run's remote storage, except checkpoints. Raises OSError."""
        if self.storage is not None:
            self.storage.send(self.path)

    @property
    def place(self) -> Path | RemoteFolder:
        """The place of the run, for messages."""
        return self.path if self.storage is None else self.storage.remote

    @property
    def shown(self) -> str:
        """The absolute place of the run, for messages."""
        return shown(self.path.absolute()) if self.storage is None else str(self.storage.remote)

    @property
    def operative_config(self) -> Path:
        """The gin file with every parameter that was used. It reproduces the run."""
        return self.path / OPERATIVE_CONFIG

    @property
    def report(self) -> Path:
        """The report of the training step: layouts, memory and every collective."""
        return self.path / "report.txt"

    @property
    def versions(self) -> Path:
        """The versions of Python, packages and platform, as JSON."""
        return self.path / "versions.json"

    @property
    def metrics(self) -> Path:
        """The metrics: one JSON object a line, with its step."""
        return self.path / "metrics.jsonl"

    @property
    def evaluations(self) -> Path:
        """The results of meshtf-eval, one JSON object a line."""
        return self.path / "evaluations.jsonl"

    @property
    def samples(self) -> Path:
        """The texts that `DecodedSamples` has continued, one JSON object a line."""
        return self.path / "samples.jsonl"

    @property
    def lock_file(self) -> Path:
        """The file that a training locks, so that no other one starts in the folder."""
        return self.path / ".lock"

    @property
    def loss_curve(self) -> Path:
        return self.path / "loss.png"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def checkpoints(self, keep: int | None = None) -> CheckpointFolder:
        """Returns the folder of checkpoints. Its `save` keeps the newest `keep`."""
        folder = self.checkpoints_path or self.path / CHECKPOINTS
        if self.storage is None:
            return CheckpointFolder(folder, keep)
        return CheckpointFolder(folder, keep, remote=RemoteCheckpoints(self.storage.remote / CHECKPOINTS, self.send))

    def read_training(self, parameters: Sequence[str | Parameter] = (), *, trust_config: bool = False) -> Training:
        """Reads the training as it was configured, with gin bindings that override parts of it.

        Args:
          parameters: the bindings.
          trust_config: whether the configuration may execute code that came with it. That is code in the run's own
            folder, Python's library, gin's dynamic registration, and other files.

        Raises:
          ConfigurationError: if the configuration names something that is gone, if a binding is wrong, or if it would
            execute code that is not trusted.
        """
        read_configuration([self.trusted_configuration(trust_config=trust_config)], parameters)
        return configured_training()

    def trusted_configuration(self, *, trust_config: bool = False) -> Path:
        """Returns the file of the configuration. Unless it is trusted, reading it executes no code that came with it.

        Raises:
          ConfigurationError: if it would execute such code.
        """
        if not trust_config:
            check_foreign(self.operative_config)
        return self.operative_config

    def checkpoint(self, step: int | None = None) -> SavedCheckpoint:
        """Opens the checkpoint of a step, or the newest complete one.

        Raises:
          ConfigurationError: if there is none at all.
          CheckpointError: if there is none of this step, or if all are damaged.
          OSError: if one cannot be read.
        """
        checkpoints = self.checkpoints()
        if step is not None:
            return checkpoints.open(step)
        saved = checkpoints.newest_readable()
        if saved is not None:
            return saved
        if steps := checkpoints.steps():
            raise CheckpointError(_ALL_DAMAGED.format(folder=checkpoints.shown, steps=", ".join(map(str, steps))))
        raise ConfigurationError(_NO_CHECKPOINT.format(folder=self.place))

    def restore(
        self,
        *programs: mtf.Function,
        step: int | None = None,
        weights: Weights | str = Weights.TRAINED,
        scope: str | None = None,
    ) -> int:
        """Restores the variables of `programs`, which share a store, from a checkpoint. Returns its step.

        Everything else in the checkpoint, such as an optimizer's state, is ignored.

        Args:
          programs: programs of the model that was trained.
          step: the step of the checkpoint. The default is the newest complete one.
          weights: "trained", or "average" for the means over the steps of training.
          scope: the scope of the model in the programs, if they have another model as well.

        Raises:
          ConfigurationError, CheckpointError: if there is no such checkpoint, if it is of another model, or if it has
            no averages.
          OSError: if it cannot be read.
        """
        saved = self.checkpoint(step)
        renamed = sources_in(saved, programs[0], Weights(weights), scope)
        try:
            restore(saved, list(programs), ignore_unused=True, renamed=renamed)
        except OtherModelError as error:
            raise OtherModelError(error.difference, _OTHER_MODEL) from None
        except DamagedCheckpointError:
            if step is not None or saved.is_there:
                raise
            # A training that runs at the same time has deleted it, and there are newer ones.
            return self.restore(*programs, weights=weights, scope=scope)
        return saved.step

    def lock(self, flag: str = "--model_dir") -> BinaryIO:
        """Keeps other trainings out of the folder, until the returned file is closed or the process has ended.

        `flag`: the flag that names the folder, for the message.

        Raises:
          ConfigurationError: if another training runs in the folder.
          OSError: if the path of the lock is a link, or is not a file.
        """
        file = open_for_lock(self.lock_file)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise ConfigurationError(_IN_USE.format(folder=self.place, flag=flag)) from None
        except OSError:  # a file system without locks
            pass
        return file

    def set_aside(self) -> RunFolder | None:
        """Moves the existing run into a subfolder: `superseded_1`, or the next free name.

        Checkpoints that are elsewhere stay there. They belong to the process whose folder holds them.

        Returns:
          The moved run, which programs can still read. None if there was no run.
        """
        if self.storage is not None:
            there = self.storage.set_aside()
            self.storage.fetch(self.path)
            return None if there is None else RunFolder(self.path, storage=RunStorage(there))
        names = [self.path / CHECKPOINTS, self.metrics, self.evaluations, self.samples, self.loss_curve]
        names += [self.tensorboard, self.report, self.versions, self.operative_config]
        there = [path for path in names if path.exists()]
        if not there:
            return None
        aside = next(f for n in itertools.count(1) if not (f := self.path / f"{SUPERSEDED}{n}").exists())
        aside.mkdir()
        for path in there:
            path.rename(aside / path.name)
        return RunFolder(aside)

    def write_versions(self) -> None:
        """Writes the versions that this process runs on, and its command."""
        facts = {name: _version(name) for name in _PACKAGES}
        facts |= {"python": platform.python_version(), "platform": platform.platform(), "command": sys.argv}
        replace_file(self.versions, (json_text(facts, indent=2) + "\n").encode())


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
