"""The checkpoints of one run: saved, listed, found again, and the oldest deleted."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._write_checkpoint import cluster_that_writes, write_checkpoint
from meshtf.checkpoint.atomic_folder import delete_folder, give_back_replaced, remove_unfinished
from meshtf.checkpoint.chunks import Chunk, chunks_of
from meshtf.checkpoint.remote_checkpoints import RemoteCheckpoints
from meshtf.checkpoint.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, DamagedCheckpointError, SaveError
from meshtf.files.remote.remote_folder import RemoteFolder, place_of
from meshtf.files.remote.working_folder import PassingFolder
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.slices import on_host

_STEP = re.compile(r"step_([0-9]{8}|[1-9][0-9]{8,})")
_LOG = logging.getLogger(__name__)

_NOT_SENT = """\
the checkpoint of step {step} cannot be written to {place}: {error}
It is whole in {path} on this machine{until}; those there are as they were."""
_UNTIL_THE_END = ", until this process ends"
_SENT = ".sent-"


class CheckpointFolder:
    """Checkpoints in the folders `step_00001000` of a folder, which is made when the first is saved.

    Those of remote storage are written in a folder of this machine first, whole, and then go there, their manifests
    last; they are read from there part by part.

    Args:
      folder: for the checkpoints of one run, such as `runs/mine` or `s3://bucket/runs/mine`.
      keep: how many are kept, the one just saved and those before it; None for all. The oldest is deleted once a newer
        one is whole.
      remote: where they go from a `folder` of this machine, which then has the newest alone.

    Attributes:
      folder: of this machine.
      kept_steps: those whose checkpoints are not deleted, however old.
    """

    def __init__(
        self, folder: Path | str | RemoteFolder, keep: int | None = 3, *, remote: RemoteCheckpoints | None = None
    ) -> None:
        if not isinstance(folder, str | os.PathLike | RemoteFolder):
            raise CheckpointError(f"the folder of checkpoints must be a path, and is {folder!r}")
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise CheckpointError(f"keep must be at least 1, or None to keep all, and is {keep!r}")
        place = folder if isinstance(folder, os.PathLike) else place_of(folder)
        self._passing: PassingFolder | None = None
        if isinstance(place, RemoteFolder):
            remote, self._passing = RemoteCheckpoints(place), PassingFolder()
            place = self._passing.path
        self.folder = Path(place)
        self.remote = remote
        self.keep = keep
        self.kept_steps: frozenset[int] = frozenset()

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, damaged ones included, oldest first.

        Raises:
          OSError: the folder is there and cannot be read.
        """
        return self._steps_here() if self.remote is None else self.remote.steps()

    def unsent(self) -> list[int]:
        """The steps of checkpoints that did not get from this machine to remote storage as they are, oldest first."""
        if self.remote is None:
            return []
        return [step for step in self._steps_here() if not self._sent_mark(step).exists()]

    def send(self, step: int) -> None:
        """Sends a checkpoint of this machine to remote storage; earlier ones of this machine are deleted.

        Raises:
          SaveError: it cannot be read, or the storage not written. It stays on this machine.
        """
        assert self.remote is not None
        try:
            self.remote.send(self.path(step), step)
        except OSError as error:
            place, path, reason = self.place(step), self.path(step), error.strerror or error
            until = "" if self._passing is None else _UNTIL_THE_END
            raise SaveError(_NOT_SENT.format(step=step, place=place, error=reason, path=path, until=until)) from None
        for older in self._steps_here():
            if older < step:
                delete_folder(self.path(older))
                self._sent_mark(older).unlink(missing_ok=True)
        self._sent_mark(step).touch()

    def _steps_here(self) -> list[int]:
        try:
            matches = [_STEP.fullmatch(path.name) for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(match[1]) for match in matches if match)

    def _sent_mark(self, step: int) -> Path:
        """A file that is there when the checkpoint of this machine has been sent as it is."""
        return self.folder / f"{_SENT}{self.path(step).name}"

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is on this machine, or would be."""
        return self.folder / f"step_{step:08d}"

    def place(self, step: int) -> Path | RemoteFolder:
        """Where the checkpoint of a step is, or would be."""
        return self.path(step) if self.remote is None else self.remote.path(step)

    @property
    def shown(self) -> Path | RemoteFolder:
        """The folder that has them, for messages."""
        return self.folder if self.remote is None else self.remote.folder

    def open(self, step: int) -> SavedCheckpoint:
        """The checkpoint of a step, its values not yet verified.

        Raises:
          CheckpointError: there is none.
          DamagedCheckpointError: its manifest is missing or was changed.
        """
        if step not in self.steps():
            known = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"{self.shown} has no checkpoint of step {step}; there are: {known}")
        return SavedCheckpoint.open(self.place(step))

    def newest_readable(self) -> SavedCheckpoint | None:
        """The newest checkpoint that is whole, all of it read and verified; None where there is none.

        Every newer one that is damaged is named in a warning to the log `meshtf.checkpoint`. One that a training
        deletes meanwhile is not: newer ones are there then.

        Raises:
          OSError: one is there and cannot be read, which is no damage.
        """
        steps, passed_over = self.steps(), set[int]()
        while left := [step for step in steps if step not in passed_over]:
            step = left[-1]
            passed_over.add(step)
            try:
                saved = SavedCheckpoint.open(self.place(step))
                saved.verify()
                return saved
            except DamagedCheckpointError as error:
                if step in self.steps():
                    _LOG.warning("%s; passed over for the one before it", error)
                else:
                    steps = self.steps()
        return None

    def remove_unfinished(self) -> list[Path | RemoteFolder]:
        """Removes what an interrupted run left half written; not while another process saves here. Gives the paths."""
        there = [] if self.remote is None else self.remote.delete_unfinished()
        return [*remove_unfinished(self.folder), *there]

    def give_back_replaced(self) -> None:
        """What an interrupted run was about to replace gets its name back; not while another process saves here."""
        give_back_replaced(self.folder)

    def save(self, step: int, store: VariableStore, state: Mapping[str, Any]) -> Path:
        """Saves every variable of the store, between steps. It appears under its name only once it is whole.

        Args:
          step: after how many steps of the training; an earlier checkpoint of the same step is replaced.
          store: at least one variable.
          state: what JSON can hold: position in the data, seed.

        Raises:
          SaveError: the disk is full, the folder read-only, or the like. Earlier checkpoints are as they were.
          CheckpointError: the store is empty, the step is no number of steps, or the state is not JSON.
        """
        if not isinstance(store, VariableStore):
            raise CheckpointError(f"a store of variables is saved, such as step.variables, not {type(store).__name__}")

        def value_of(chunk: Chunk) -> tf.Tensor:
            variable = store.slices(chunk.variable)
            value = variable.numpy() if chunk.core is None else on_host(variable.slices[chunk.core])
            return tf.constant(value[chunk.index])

        return self.write(step, list(chunks_of(store.slices(name) for name in store)), value_of, state)

    def write(
        self, step: int, chunks: Sequence[Chunk], value_of: Callable[[Chunk], tf.Tensor], state: Mapping[str, Any]
    ) -> Path:
        """`save`, of chunks whose values are asked for one after the other."""
        check_step(step)
        path = self.path(step)
        if self.remote is not None:
            self._sent_mark(step).unlink(missing_ok=True)
        write_checkpoint(path, step, chunks, value_of, state)
        cluster = cluster_that_writes(chunks)
        if cluster is not None and not cluster.is_leader:
            return path
        if self.remote is not None:
            self.send(step)
        # Later ones that are there were passed over as damaged; they must not take the place of this one.
        older = [known for known in self.steps() if known < step]
        for old in older[: max(len(older) - self.keep + 1, 0)] if self.keep else []:
            if old in self.kept_steps:
                continue
            try:
                if self.remote is None:
                    delete_folder(self.path(old))
                else:
                    self.remote.delete(old)
            except OSError as error:
                _LOG.warning("%s is whole, and %s cannot be deleted: %s", self.place(step), self.place(old), error)
        return path


def check_step(step: int) -> None:
    """CheckpointError where no checkpoint can be of this step, or would not be found again."""
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
        raise CheckpointError(f"a checkpoint is of a step, an integer from 0 on, and not of {step!r}")


def is_step_name(name: str) -> bool:
    """Whether a folder's name is that of a step's checkpoint."""
    return _STEP.fullmatch(name) is not None
