"""Tensors of another library that meshtf does not need, such as counts of steps. An export writes them unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.formats.safetensors_file import SafetensorsFile, write_safetensors
from meshtf.checkpoint.formats.tensor_source import OfAnother, Part, TensorSource
from meshtf.checkpoint.manifest import SavedTensor

_FILE = "kept.safetensors"


def keep_tensors(source: TensorSource, names: Sequence[str], folder: Path) -> None:
    """Writes a file of these tensors, unless there are none."""
    if names:
        write_safetensors(Part(source, names), folder / _FILE)


@dataclasses.dataclass(frozen=True)
class WithKept(OfAnother):
    """A source together with the tensors that an import kept.

    Attributes:
      kept: the file of the kept tensors.
      tensors: the shapes and dtypes of all.
    """

    kept: SafetensorsFile
    tensors: Mapping[str, SavedTensor]

    @classmethod
    def of(cls, source: TensorSource, folder: Path | None) -> TensorSource:
        """Adds a folder's kept tensors to a source, if it has any. Raises CheckpointError if their file is damaged."""
        if folder is None or not (folder / _FILE).is_file():
            return source
        kept = SafetensorsFile.open(folder / _FILE)
        return cls(source, kept, {**source.tensors, **kept.tensors})

    def read(self, name: str, box: Box | None = None) -> tf.Tensor:
        """A tensor, or a part of it."""
        return (self.kept if name in self.kept.tensors else self.source).read(name, box)
