"""Reads whole values of variables from a checkpoint, for a process that lacks some of their slices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from meshtf.checkpoint._box import Box
from meshtf.checkpoint.chunks import layers_in
from meshtf.checkpoint.reading.saved_checkpoint import SavedCheckpoint
from meshtf.lowering.variable_store import VariableStore


@dataclasses.dataclass(frozen=True)
class SavedValues(Mapping[str, np.ndarray]):
    """The saved value of each variable of a store, by name. A value is read from the checkpoint at each
    access.
    """

    saved: SavedCheckpoint
    store: VariableStore

    def __getitem__(self, name: str) -> np.ndarray:
        variable = self.store.slices(name)
        sizes = variable.unpadded_shape.to_integer_list
        whole = np.empty(sizes, variable.dtype.as_numpy_dtype)
        for layer in layers_in(variable, Box.whole(tuple(sizes))):
            whole[layer.index] = self.saved.read(layer.name).numpy()
        return whole

    def __iter__(self) -> Iterator[str]:
        return iter(self.store)

    def __len__(self) -> int:
        return len(self.store)
