"""Sends large inputs to a device in several chunks at once. A small program concatenates them there.

A runtime copies an array into memory that the device reads, in one thread. That is 5 GB/s on the host of an H200, whose
bus can transfer 55. If several threads send a chunk each, the copies run in parallel.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import numpy as np

_Given = TypeVar("_Given")
_Made = TypeVar("_Made")

_MODULE = """\
module @join {{
  func.func public @main({parameters}) -> {whole} {{
    %all = stablehlo.concatenate {names}, dim = 0 : ({given}) -> {flat}
    %whole = stablehlo.reshape %all : ({flat}) -> {whole}
    return %whole : {whole}
  }}
}}
"""


@dataclasses.dataclass(frozen=True)
class InputChunks:
    """The division of inputs into chunks.

    Attributes:
      count: the most chunks of an input, each copied by one thread.
      min_bytes: inputs with fewer bytes, for all cores of a process together, are not divided.
      multiple: every chunk except the last has a multiple of this many elements, so that a device's kernel can copy
        several at once.
    """

    count: int
    min_bytes: int
    multiple: int = 1024

    def sizes(self, elements: int) -> list[int]:
        """The sizes of the chunks of an array with this many elements. All chunks but the last have the same size."""
        most = self.multiple * math.ceil(elements / (self.count * self.multiple))
        return [min(most, elements - start) for start in range(0, elements, most)]

    def cut(self, pieces: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """Divides the array of each core, all of one shape, and returns a list of the cores' arrays for each chunk.

        Nothing is copied. An array is one chunk if it is small, is not contiguous in memory, or has elements of less
        than a byte, which XLA cannot concatenate.
        """
        first = pieces[0]
        if len(pieces) * first.nbytes < self.min_bytes or not all(p.flags.c_contiguous for p in pieces):
            return [list(pieces)]
        if jax.dtypes.itemsize_bits(first.dtype) < 8:
            return [list(pieces)]
        ends = np.cumsum(self.sizes(first.size))
        chunks = {id(p): np.split(p.reshape(-1), ends[:-1]) for p in pieces}  # cores may share an array
        return [[chunks[id(p)][number] for p in pieces] for number in range(len(ends))]

    def at_once(self, function: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
        """Calls a function for each chunk, in threads. Returns when all have returned, or raises the error of one."""
        try:
            made = _threads(self.count).map(function, given)
        except RuntimeError:  # the interpreter is shutting down, and starts no threads any more
            made = map(function, given)
        return list(made)


GPU_INPUTS = InputChunks(count=4, min_bytes=8 << 20)
"""The chunks for GPUs. More threads would be slower each, since the host's memory bandwidth is the limit."""


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "meshtf-inputs")


def joining_module(sizes: Sequence[int], shape: Sequence[int], element: str) -> str:
    """The text of a StableHLO module that concatenates flat arrays of these sizes to an array of this shape.

    `element` is MLIR's name of their element type, such as "f32".
    """
    types = [f"tensor<{size}x{element}>" for size in sizes]
    names = [f"%x{number}" for number in range(len(sizes))]
    return _MODULE.format(
        parameters=", ".join(f"{name}: {kind}" for name, kind in zip(names, types, strict=True)),
        names=", ".join(names),
        given=", ".join(types),
        flat=f"tensor<{sum(sizes)}x{element}>",
        whole=f"tensor<{''.join(f'{n}x' for n in shape)}{element}>",
    )
