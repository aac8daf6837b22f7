"""Sources of named tensors that can be read part by part, such as checkpoints, files of other formats, and means."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import LARGEST_CHUNK, WHOLE_TYPES, Chunk
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.checkpoint.saving.write_checkpoint import write_checkpoint


class TensorSource(Protocol):
    """Named tensors, the step they are from, and the run's own state."""

    @property
    def step(self) -> int: ...

    @property
    def state(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, SavedTensor]: ...

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns a tensor, or a part of it."""
        ...


@dataclasses.dataclass(frozen=True)
class OfAnother:
    """The base of sources that change the tensors of another source, and keep its step and state."""

    source: TensorSource

    @property
    def step(self) -> int:
        return self.source.step

    @property
    def state(self) -> Mapping[str, Any]:
        return self.source.state


@dataclasses.dataclass(frozen=True)
class Part:
    """Some tensors of a source, with a step and a state of their own."""

    source: TensorSource
    names: Sequence[str]
    step: int = 0
    state: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        return {name: self.source.tensors[name] for name in self.names}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns a tensor, or a part of it."""
        return self.source.read(name, box)


def parts_of(tensor: SavedTensor) -> Iterator[Box]:
    """Yields small boxes that make up a tensor, in the order in which its elements are in memory."""
    whole = Box.whole(tensor.shape)
    if tensor.dtype in WHOLE_TYPES or not whole.num_elements:
        yield whole
    else:
        yield from whole.subdivided(max(LARGEST_CHUNK // tensor.dtype.size, 1))


def described(shape: Sequence[int], dtype: tf.DType) -> SavedTensor:
    """Returns the description of a tensor that a file of another format holds in one piece."""
    return SavedTensor(tuple(shape), dtype, (Box.whole(tuple(shape)),))


def elements(source: TensorSource, name: str) -> Iterator[np.ndarray]:
    """Yields the values of a tensor, part after part, in the order in which they are in memory."""
    for box in parts_of(source.tensors[name]):
        yield source.read(name, box).numpy()


def write_source(source: TensorSource, folder: Path) -> None:
    """Writes a source as a checkpoint. Raises SaveError if it cannot."""
    chunks = [
        Chunk(name, tensor.shape, tensor.dtype, box, name, None, ())
        for name, tensor in source.tensors.items()
        for box in parts_of(tensor)
    ]
    write_checkpoint(folder, source.step, chunks, lambda chunk: source.read(chunk.tensor, chunk.box), source.state)
