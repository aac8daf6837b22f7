"""Writes one checkpoint's folder, completely or not at all."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from meshtf.checkpoint.atomic_folder import atomic_folder
from meshtf.checkpoint.chunks import Chunk
from meshtf.checkpoint.formats.tensor_files import merge, write_chunks
from meshtf.checkpoint.manifest import MANIFEST, Manifest, checked_state, tensors_of
from meshtf.checkpoint.reading.saved_checkpoint import PREFIX, described_file
from meshtf.checkpoint.saving._slices_on_the_way import SlicesOnTheWay, as_saved, is_on_the_way
from meshtf.checkpoint.saving.writing_together import own_prefix, write_together
from meshtf.cluster.cluster import Cluster
from meshtf.errors import CheckpointError, SaveError
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime

_NOT_SAVED = """\
the checkpoint of step {step} cannot be written to {folder}: {error}
It would take {needed:,} bytes, and {free:,} are free there. Earlier checkpoints are unchanged."""


def write_checkpoint(
    folder: Path,
    step: int,
    chunks: Sequence[Chunk],
    value_of: Callable[[Chunk], tf.Tensor],
    state: Mapping[str, Any],
) -> None:
    """Writes chunks as a checkpoint, and replaces an existing one. It calls `value_of` for one chunk after the other.

    Raises:
      SaveError: if it cannot be written. The earlier checkpoint is unchanged.
      CheckpointError: if there is nothing to write, or if JSON cannot hold the state.
    """
    check_not_empty(chunks)
    kept = checked_state(state)
    cluster = cluster_that_writes(chunks)

    def finish(temporary: Path) -> None:
        # With this file tf.train.load_checkpoint accepts the folder as well.
        (temporary / "checkpoint").write_text(f'model_checkpoint_path: "{PREFIX}"\n')
        files = {path.name: described_file(path) for path in sorted(temporary.iterdir())}
        Manifest(step, kept, tensors_of(as_saved(chunks)), files).write(temporary / MANIFEST)

    try:
        if cluster is not None:
            _write_with_others(cluster, folder, chunks, value_of, finish)
            return
        with atomic_folder(folder) as temporary:
            write_chunks(temporary / PREFIX, chunks, value_of)
            finish(temporary)
    except (OSError, tf.errors.OpError) as error:
        reason = getattr(error, "strerror", None) or getattr(error, "message", None) or str(error)
        existing = next(path for path in folder.absolute().parents if path.exists())
        needed, free = sum(chunk.num_bytes for chunk in chunks), shutil.disk_usage(existing).free
        message = _NOT_SAVED.format(step=step, folder=folder, error=reason, needed=needed, free=free)
        raise SaveError(message) from error


def cluster_that_writes(chunks: Sequence[Chunk]) -> Cluster | None:
    """Returns the cluster whose processes write these chunks together, or None if this process has them all."""
    return collective_runtime().cluster if any(chunk.process is not None for chunk in chunks) else None


def _write_with_others(
    cluster: Cluster,
    folder: Path,
    chunks: Sequence[Chunk],
    value_of: Callable[[Chunk], tf.Tensor],
    finish: Callable[[Path], None],
) -> None:
    passing, prefix = SlicesOnTheWay.of(chunks), own_prefix(cluster)
    own = [c for c in chunks if c.process == cluster.process_index and not is_on_the_way(c)]

    def write_own(temporary: Path) -> None:
        passing.leave(temporary, cluster.process_index, prefix, value_of)
        if own:
            write_chunks(temporary / prefix, own, value_of, part=f"{prefix}_part")

    def join(temporary: Path) -> None:
        if whole := passing.whole():
            put_together = functools.partial(passing.put_together, temporary)
            write_chunks(temporary / f"{prefix}_whole", whole, put_together, part=f"{prefix}_whole_part")
        merge([path.with_suffix("") for path in sorted(temporary.glob("process_*.index"))], temporary / PREFIX)
        finish(temporary)

    write_together(cluster, folder, write_own, join)


def check_not_empty(chunks: Sequence[Chunk]) -> None:
    """Raises CheckpointError if there is nothing to save."""
    if not chunks:
        raise CheckpointError(
            "there is nothing to save: a store is empty until a program has run or has been initialized"
        )
