"""Saves, lists and finds the checkpoints of one run, and deletes the oldest."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint.atomic_folder import delete_folder, give_back_replaced, remove_unfinished
from meshtf.checkpoint.chunks import Chunk, chunks_of
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.checkpoint.remote_checkpoints import STEP, RemoteCheckpoints
from meshtf.checkpoint.saving.write_checkpoint import cluster_that_writes, write_checkpoint
from meshtf.checkpoint.saving.writing_together import led_by_process_0
from meshtf.cluster.cluster import Cluster
from meshtf.errors import CheckpointError, DamagedCheckpointError, SaveError
from meshtf.files.remote.remote_folder import RemoteFolder, place_of
from meshtf.files.remote.working_folder import PassingFolder
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.slices import on_host

_STEP = re.compile(STEP)
_LOG = logging.getLogger(__name__)

_NOT_SENT = """\
the checkpoint of step {step} cannot be written to {place}: {error}
A complete copy is in {path} on this machine{until}; the checkpoints in {place} are unchanged."""
_UNTIL_THE_END = ", until this process ends"
_SENT = ".sent-"


class CheckpointFolder:
    """The checkpoints of a run, in subfolders such as `step_00001000` of one folder. The first save makes the folder.

    With remote storage, a checkpoint is first written to a folder on this machine. Then its files are sent, with the
    manifest last. Reading fetches only the parts that are needed.

    Args:
      folder: the folder for the checkpoints of one run, such as `runs/mine` or `s3://bucket/runs/mine`.
      keep: how many checkpoints to keep, counted back from the latest save. None: all. The oldest is deleted only after
        the new one is complete.
      remote: the storage that receives the checkpoints of a `folder` on this machine. The folder then keeps only the
        newest.

    Attributes:
      folder: the folder on this machine.
      kept_steps: the steps whose checkpoints are not deleted, however old.
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
        """Lists the steps that have a checkpoint, damaged or not, oldest first.

        Raises:
          OSError: if the folder cannot be read.
        """
        return self._steps_here() if self.remote is None else self.remote.steps()

    def unsent(self) -> list[int]:
        """Lists the steps of checkpoints on this machine whose present content has not been sent to remote storage,
        oldest first.
        """
        if self.remote is None:
            return []
        return [step for step in self._steps_here() if not self._sent_mark(step).exists()]

    def send(self, step: int) -> None:
        """Sends a checkpoint from this machine to remote storage, and deletes earlier ones on this machine.

        Raises:
          SaveError: if the checkpoint cannot be read, or the storage cannot be written. Nothing is deleted here then.
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

    def _send_for_all(self, step: int, cluster: Cluster | None) -> None:
        """Sends a checkpoint that this process, or the processes of a cluster together, have written."""
        if cluster is None:
            self.send(step)
            return
        try:
            led_by_process_0(cluster, f"sent {self.path(step).name}", lambda: self.send(step))
        except OSError as error:
            raise SaveError(str(error)) from None

    def _steps_here(self) -> list[int]:
        try:
            matches = [_STEP.fullmatch(path.name) for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(match[1]) for match in matches if match)

    def _sent_mark(self, step: int) -> Path:
        """Returns the path of a file that exists once the present checkpoint on this machine has been sent."""
        return self.folder / f"{_SENT}{self.path(step).name}"

    def path(self, step: int) -> Path:
        """Returns the path of a step's checkpoint on this machine, even if there is none."""
        return self.folder / f"step_{step:08d}"

    def place(self, step: int) -> Path | RemoteFolder:
        """Returns the place of a step's checkpoint, even if there is none."""
        return self.path(step) if self.remote is None else self.remote.path(step)

    @property
    def shown(self) -> Path | RemoteFolder:
        """The folder that has the checkpoints, for messages."""
        return self.folder if self.remote is None else self.remote.folder

    def open(self, step: int) -> SavedCheckpoint:
        """Opens the checkpoint of a step. Its values are not verified yet.

        Raises:
          CheckpointError: if there is none.
          DamagedCheckpointError: if its manifest is missing or was changed.
        """
        if step not in self.steps():
            known = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"{self.shown} has no checkpoint of step {step}; there are: {known}")
        return SavedCheckpoint.open(self.place(step))

    def newest_readable(self) -> SavedCheckpoint | None:
        """Returns the newest undamaged checkpoint, after verifying all of it, or None.

        The log `meshtf.checkpoint` warns of each newer checkpoint that is damaged. It does not warn of one that a
        training has deleted meanwhile, because newer ones exist then.

        Raises:
          OSError: if a checkpoint cannot be read. This does not mean that it is damaged.
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
                    _LOG.warning("%s; the checkpoint before it is used instead", error)
                else:
                    steps = self.steps()
        return None

    def remove_unfinished(self) -> list[Path | RemoteFolder]:
        """Removes the unfinished files of an interrupted run, and returns their paths.

        No other process may save here at the same time.
        """
        there = [] if self.remote is None else self.remote.delete_unfinished()
        return [*remove_unfinished(self.folder), *there]

    def give_back_replaced(self) -> None:
        """Restores the name of a folder that an interrupted run was about to replace.

        No other process may save here at the same time.
        """
        give_back_replaced(self.folder)

    def save(self, step: int, store: VariableStore, state: Mapping[str, Any]) -> Path:
        """Saves every variable of the store. Call it between steps. The checkpoint appears under its name only when it
        is complete.

        Args:
          step: the number of steps of the training so far. An earlier checkpoint of the same step is replaced.
          store: the variables, at least one.
          state: values that JSON can hold, such as the position in the data and the seed.

        Raises:
          SaveError: if the disk is full, the folder is read-only, or the like. Earlier checkpoints are unchanged.
          CheckpointError: if the store is empty, the step is no number of steps, or JSON cannot hold the state.
        """
        if not isinstance(store, VariableStore):
            raise CheckpointError(
                f"save() takes a store of variables, such as step.variables, not {type(store).__name__}"
            )

        def value_of(chunk: Chunk) -> tf.Tensor:
            variable = store.slices(chunk.variable)
            value = variable.numpy() if chunk.core is None else on_host(variable.slices[chunk.core])
            return tf.constant(value[chunk.index])

        return self.write(step, list(chunks_of(store.slices(name) for name in store)), value_of, state)

    def write(
        self, step: int, chunks: Sequence[Chunk], value_of: Callable[[Chunk], tf.Tensor], state: Mapping[str, Any]
    ) -> Path:
        """Does the same as `save`, for chunks. It calls `value_of` for one chunk after the other."""
        check_step(step)
        path = self.path(step)
        if self.remote is not None:
            self._sent_mark(step).unlink(missing_ok=True)
        write_checkpoint(path, step, chunks, value_of, state)
        cluster = cluster_that_writes(chunks)
        if self.remote is not None:
            self._send_for_all(step, cluster)
        if cluster is not None and not cluster.is_leader:
            return path
        # Existing checkpoints of later steps were skipped as damaged. They must not count as newer than this one.
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
                _LOG.warning("%s is complete, but %s cannot be deleted: %s", self.place(step), self.place(old), error)
        return path


def check_step(step: int) -> None:
    """Raises CheckpointError if no checkpoint can have this step, or could not be found by it."""
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
        raise CheckpointError(f"the step of a checkpoint must be an int of Python, 0 or more, not {step!r}")


def is_step_name(name: str) -> bool:
    """Tells whether a folder's name is that of a step's checkpoint."""
    return _STEP.fullmatch(name) is not None
