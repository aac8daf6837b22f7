"""Variables whose slices are buffers on the cores. A program consumes the buffers and returns new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

if TYPE_CHECKING:
    from meshtf.mesh_impl.pjrt.pjrt import CoreArray, Cores


class BufferSlices(Mapping[int, "BufferSlice"]):
    """One variable, with a buffer on each core of this process.

    Attributes:
      array: the buffers. A program that assigns the variable consumes them, and stores its results here.
    """

    def __init__(self, cores: Cores, slice_shape: Sequence[int], dtype: tf.DType) -> None:
        zeros = np.zeros(slice_shape, dtype.as_numpy_dtype)
        self.array: CoreArray = cores.put([zeros] * len(cores.numbers))
        self.shape, self.dtype = tf.TensorShape(slice_shape), dtype
        self._cores = cores
        self._slices = {core: BufferSlice(self, position) for position, core in enumerate(cores.numbers)}

    def __getitem__(self, core: int) -> BufferSlice:
        return self._slices[core]

    def __iter__(self) -> Iterator[int]:
        return iter(self._slices)

    def __len__(self) -> int:
        return len(self._slices)

    def on_host(self, position: int) -> np.ndarray:
        """The value of one of this process's cores. Read it before the next step."""
        return self._cores.piece(self.array, position)

    def replace(self, position: int, value: np.ndarray) -> None:
        """Replaces the value on one of this process's cores."""
        self.array = self._cores.replaced(self.array, position, value)


class BufferSlice:
    """A core's part of a variable, as `meshtf.mesh_impl.slices.Slice`."""

    def __init__(self, variable: BufferSlices, position: int) -> None:
        self._variable, self._position = variable, position

    @property
    def dtype(self) -> tf.DType:
        return self._variable.dtype

    @property
    def shape(self) -> tf.TensorShape:
        return self._variable.shape

    def numpy(self) -> np.ndarray:
        """A copy on the host. Waits for the running step."""
        return np.array(self)

    def assign(self, value: Any) -> None:
        """Assigns a copy of an array of the same shape."""
        given = value.numpy() if isinstance(value, tf.Tensor) else value
        array = np.array(given, self.dtype.as_numpy_dtype, order="C")
        if array.shape != tuple(self.shape):
            raise ValueError(f"a slice {list(self.shape)} was given an array {list(array.shape)}")
        self._variable.replace(self._position, array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        held = self._variable.on_host(self._position)
        return np.array(held, dtype, copy=copy)
