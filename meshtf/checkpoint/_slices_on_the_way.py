"""Slices that TensorFlow cannot put together (`WHOLE_TYPES`) and that are in several processes: each process leaves its
own as files in the folder that all write into, and process 0 saves the whole tensors."""

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
    """Of a checkpoint's chunks, those that are parts of tensors which must be saved whole; alike in all processes."""

    chunks: tuple[Chunk, ...]

    @classmethod
    def of(cls, chunks: Iterable[Chunk]) -> SlicesOnTheWay:
        return cls(tuple(filter(is_on_the_way, chunks)))

    def leave(self, folder: Path, process: int, prefix: str, value_of: Callable[[Chunk], tf.Tensor]) -> None:
        """Writes this process's own, in files whose names begin with `prefix`."""
        for number, chunk in enumerate(self.chunks):
            if chunk.process == process:
                np.save(folder / f"{prefix}{_suffix(number)}", value_of(chunk).numpy())

    def whole(self) -> list[Chunk]:
        """A chunk for each tensor that they make up."""
        firsts = {chunk.tensor: chunk for chunk in reversed(self.chunks)}
        return [dataclasses.replace(firsts[name], box=Box.whole(firsts[name].shape)) for name in sorted(firsts)]

    def put_together(self, folder: Path, whole: Chunk) -> tf.Tensor:
        """The value of a whole tensor, from files that all processes left; these are gone then."""
        value = np.empty(whole.shape, whole.dtype.as_numpy_dtype)
        for number, chunk in enumerate(self.chunks):
            if chunk.tensor == whole.tensor:
                (left,) = folder.glob(f"*{_suffix(number)}")
                value[chunk.box.slices] = np.load(left)
                left.unlink()
        return tf.constant(value)


def is_on_the_way(chunk: Chunk) -> bool:
    """Whether it is a part of a tensor that must be saved whole."""
    return chunk.dtype in WHOLE_TYPES and chunk.box != Box.whole(chunk.shape)


def as_saved(chunks: Sequence[Chunk]) -> list[Chunk]:
    """The chunks as they are in the files in the end."""
    return [*(chunk for chunk in chunks if not is_on_the_way(chunk)), *SlicesOnTheWay.of(chunks).whole()]


def _suffix(number: int) -> str:
    return f"_slice_{number:05d}.npy"
