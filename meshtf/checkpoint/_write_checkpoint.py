"""One checkpoint's folder: written whole, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint._chunks import Chunk
from meshtf.checkpoint.atomic_folder import atomic_folder
from meshtf.checkpoint.formats.tensor_files import write_chunks
from meshtf.checkpoint.manifest import MANIFEST, Manifest, checked_state, tensors_of
from meshtf.checkpoint.saved_checkpoint import PREFIX, described_file
from meshtf.errors import CheckpointError, SaveError

_NOT_SAVED = """\
the checkpoint of step {step} cannot be written to {folder}: {error}
It would take {needed:,} bytes, and {free:,} are free there. Earlier checkpoints are as they were."""


def write_checkpoint(
    folder: Path,
    step: int,
    chunks: Sequence[Chunk],
    value_of: Callable[[Chunk], tf.Tensor],
    state: Mapping[str, Any],
) -> None:
    """Writes chunks, whose values are asked for one after the other; replaces a checkpoint that is there.

    Raises:
      SaveError: it cannot be written. What was there before is as it was.
      CheckpointError: there is nothing to write, or JSON cannot hold the state.
    """
    check_not_empty(chunks)
    kept = checked_state(state)
    try:
        with atomic_folder(folder) as temporary:
            write_chunks(temporary / PREFIX, chunks, value_of)
            # With this file tf.train.load_checkpoint takes the folder, too.
            (temporary / "checkpoint").write_text(f'model_checkpoint_path: "{PREFIX}"\n')
            files = {path.name: described_file(path) for path in sorted(temporary.iterdir())}
            (temporary / MANIFEST).write_text(Manifest(step, kept, tensors_of(chunks), files).text(), "utf-8")
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
        existing = next(path for path in folder.absolute().parents if path.exists())
        needed, free = sum(chunk.num_bytes for chunk in chunks), shutil.disk_usage(existing).free
        message = _NOT_SAVED.format(step=step, folder=folder, error=reason, needed=needed, free=free)
        raise SaveError(message) from error


def check_not_empty(chunks: Sequence[Chunk]) -> None:
    """Raises CheckpointError where there is nothing to save."""
    if not chunks:
        raise CheckpointError("there is nothing to save: a store is empty until a program has run, or was initialized")
