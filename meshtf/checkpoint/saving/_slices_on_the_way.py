"""Collects slices from several processes for types that TensorFlow cannot join (`WHOLE_TYPES`).

Each process writes its own slices as files into the folder that all share. Process 0 joins them and saves the whole
tensors.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import WHOLE_TYPES, Chunk


@dataclasses.dataclass(frozen=True, slots=True)
class SlicesOnTheWay:
    """The chunks of a checkpoint that belong to tensors which must be saved whole. All processes have the same
    chunks.
    """

    chunks: tuple[Chunk, ...]

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> SlicesOnTheWay:
        return cls(tuple(filter(is_on_the_way, chunks)))

    def leave(self, folder: Path, process: int, prefix: str, value_of: Callable[[Chunk], tf.Tensor]) -> None:
        """Writes this process's slices into files whose names begin with `prefix`."""
        for number, chunk in enumerate(self.chunks):
            if chunk.process == process:
                np.save(folder / f"{prefix}{_suffix(number)}", value_of(chunk).numpy())

    def whole(self) -> list[Chunk]:
        """Returns a chunk for each tensor that they make up."""
        firsts = {chunk.tensor: chunk for chunk in reversed(self.chunks)}
        return [dataclasses.replace(firsts[name], box=Box.whole(firsts[name].shape)) for name in sorted(firsts)]

    def put_together(self, folder: Path, whole: Chunk) -> tf.Tensor:
        """Joins a whole tensor from the files that all processes wrote, and deletes the files."""
        value = np.empty(whole.shape, whole.dtype.as_numpy_dtype)
        for number, chunk in enumerate(self.chunks):
            if chunk.tensor == whole.tensor:
                (left,) = folder.glob(f"*{_suffix(number)}")
                value[chunk.box.slices] = np.load(left)
                left.unlink()
        return tf.constant(value)


def is_on_the_way(chunk: Chunk) -> bool:
    """Tells whether a chunk is a part of a tensor that must be saved whole."""
    return chunk.dtype in WHOLE_TYPES and chunk.box != Box.whole(chunk.shape)


def as_saved(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Returns the chunks as they are in the final files."""
    return [*(chunk for chunk in chunks if not is_on_the_way(chunk)), *SlicesOnTheWay.of(chunks).whole()]


def _suffix(number: int) -> str:
    return f"_slice_{number:05d}.npy"
