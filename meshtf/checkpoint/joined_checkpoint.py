"""A checkpoint and tensors that go before its own, such as adapters that were saved apart."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.tensor_source import TensorSource
from meshtf.checkpoint.manifest import SavedTensor
from meshtf.checkpoint.saved_checkpoint import SavedCheckpoint
from meshtf.files.remote.remote_folder import RemoteFolder


class Restorable(TensorSource, Protocol):
    """What variables are restored from: named tensors that are somewhere."""

    @property
    def place(self) -> Path | RemoteFolder:
        """Where, in messages."""
        ...


@dataclasses.dataclass(frozen=True)
class JoinedCheckpoint:
    """All tensors of both; of one that both have, that of `first`."""

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
        """A tensor, or a part of it."""
        return (self.first if name in self.first.tensors else self.saved).read(name, box)
