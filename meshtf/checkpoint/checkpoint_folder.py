"""The checkpoints of one run: saved, listed, found again, and the oldest deleted."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._chunks import Chunk, chunks_of
from meshtf.checkpoint._write_checkpoint import cluster_that_writes, write_checkpoint
from meshtf.checkpoint.atomic_folder import delete_folder, give_back_replaced, remove_unfinished
from meshtf.checkpoint.saved_checkpoint import SavedCheckpoint
from meshtf.errors import CheckpointError, DamagedCheckpointError
from meshtf.lowering.variable_store import VariableStore
from meshtf.mesh_impl.slices import on_host

_STEP = re.compile(r"step_([0-9]{8}|[1-9][0-9]{8,})")
_LOG = logging.getLogger(__name__)


class CheckpointFolder:
    """Checkpoints in the folders `step_00001000` of a folder, which is made when the first is saved.

    Args:
      folder: for the checkpoints of one run.
      keep: how many are kept, the one just saved and those before it; None for all. The oldest is deleted once a newer
        one is whole.

    Attributes:
      kept_steps: those whose checkpoints are not deleted, however old.
    """

    def __init__(self, folder: Path | str, keep: int | None = 3) -> None:
        if not isinstance(folder, str | os.PathLike):
            raise CheckpointError(f"the folder of checkpoints must be a path, and is {folder!r}")
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise CheckpointError(f"keep must be at least 1, or None to keep all, and is {keep!r}")
        self.folder = Path(folder)
        self.keep = keep
        self.kept_steps: frozenset[int] = frozenset()

    def steps(self) -> list[int]:
        """The steps of which there is a checkpoint, damaged ones included, oldest first.

        Raises:
          OSError: the folder is there and cannot be read.
        """
        try:
            matches = [_STEP.fullmatch(path.name) for path in self.folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(int(match[1]) for match in matches if match)

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / f"step_{step:08d}"

    def open(self, step: int) -> SavedCheckpoint:
        """The checkpoint of a step, its values not yet verified.

        Raises:
          CheckpointError: there is none.
          DamagedCheckpointError: its manifest is missing or was changed.
        """
        if step not in self.steps():
            known = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"{self.folder} has no checkpoint of step {step}; there are: {known}")
        return SavedCheckpoint.open(self.path(step))

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
                saved = SavedCheckpoint.open(self.path(step))
                saved.verify()
                return saved
            except DamagedCheckpointError as error:
                if self.path(step).exists():
                    _LOG.warning("%s; passed over for the one before it", error)
                else:
                    steps = self.steps()
        return None

    def remove_unfinished(self) -> list[Path]:
        """Removes what an interrupted run left half written; not while another process saves here. Gives the paths."""
        return remove_unfinished(self.folder)

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
        write_checkpoint(path, step, chunks, value_of, state)
        cluster = cluster_that_writes(chunks)
        if cluster is not None and not cluster.is_leader:
            return path
        # Later ones that are there were passed over as damaged; they must not take the place of this one.
        older = [known for known in self.steps() if known < step]
        for old in older[: max(len(older) - self.keep + 1, 0)] if self.keep else []:
            if old in self.kept_steps:
                continue
            try:
                delete_folder(self.path(old))
            except OSError as error:
                _LOG.warning("%s is whole, and %s cannot be deleted: %s", path, self.path(old), error)
        return path


def check_step(step: int) -> None:
    """CheckpointError where no checkpoint can be of this step, or would not be found again."""
    if not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**63:
        raise CheckpointError(f"a checkpoint is of a step, an integer from 0 on, and not of {step!r}")


def is_step_name(name: str) -> bool:
    """Whether a folder's name is that of a step's checkpoint."""
    return _STEP.fullmatch(name) is not None
