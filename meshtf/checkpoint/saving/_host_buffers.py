"""Copies slices to the host, into memory that every save reuses."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from meshtf.checkpoint.chunks import Chunk, chunks_of, is_put_together, saved_boxes
from meshtf.lowering.variable_store import StoreEntry, VariableStore
from meshtf.mesh_impl.slices import on_host


class HostBuffers:
    """One replica of each slice of a store, as it was at the last `copy`."""

    def __init__(self) -> None:
        self._by_name: dict[str, dict[int | None, np.ndarray]] = {}
        self._chunks: list[Chunk] = []
        self._arrays: dict[StoreEntry, dict[int | None, np.ndarray]] = {}

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for arrays in self._arrays.values() for array in arrays.values())

    def copy(self, store: VariableStore) -> list[Chunk]:
        """Copies every variable, and returns the chunks whose values `value_of` then has."""
        variables = [store.slices(name) for name in store]
        if variables != list(self._arrays):
            self._arrays = {v: {core: np.empty_like(_value(v, core)) for core in _cores(v)} for v in variables}
            self._by_name = {v.name: arrays for v, arrays in self._arrays.items()}
            self._chunks = list(chunks_of(variables))
        for variable, arrays in self._arrays.items():
            for core, array in arrays.items():
                np.copyto(array, _value(variable, core))
        return self._chunks

    def value_of(self, chunk: Chunk) -> tf.Tensor:
        return tf.constant(self._by_name[chunk.variable][chunk.core][chunk.index])


def _cores(variable: StoreEntry) -> list[int | None]:
    """Returns one core for each distinct slice that this process writes, or None for a variable that is saved as
    one chunk.
    """
    if is_put_together(variable):
        return [None] if 0 in variable.slices else []
    return [core for box, core in saved_boxes(variable).items() if box.num_elements and core in variable.slices]


def _value(variable: StoreEntry, core: int | None) -> np.ndarray:
    """Returns a core's slice, or the whole variable. A slice in the host's memory is not copied."""
    if core is None:
        return variable.numpy()
    return on_host(variable.slices[core])  # training waits
