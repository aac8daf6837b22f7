"""A checkpoint together with tensors that replace some of its own, such as adapters that were saved separately."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import TensorSource
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.files.remote.remote_folder import RemoteFolder


class Restorable(TensorSource, Protocol):
    """A source from which variables can be restored: named tensors, and the place where they are."""

    @property
    def place(self) -> Path | RemoteFolder:
        """The place, for messages."""
        ...


@dataclasses.dataclass(frozen=True)
class JoinedCheckpoint:
    """All tensors of two sources. If both have a tensor of the same name, `first` wins."""

    first: TensorSource
    saved: SavedCheckpoint

    @property
    def place(self) -> Path | RemoteFolder:
        return self.saved.place

    @property
    def step(self) -> int:
        return self.saved.step

    @property
    def state(self) -> Mapping[str, Any]:
        return self.saved.state

    @property
    def tensors(self) -> Mapping[str, SavedTensor]:
        return {**self.saved.tensors, **self.first.tensors}

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """Returns a tensor, or a part of it."""
        return (self.first if name in self.first.tensors else self.saved).read(name, box)
