"""Large inputs go to a device in several chunks at once, and a small program joins them there.

A runtime copies an array into memory that the device reads, in one thread: 5 GB/s on the host of an H200, whose bus
takes 55. Threads that each hand over a chunk copy at once.
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
    """How inputs are cut.

    Attributes:
      count: the most chunks of an input, each of which a thread copies.
      min_bytes: inputs with fewer bytes, for all cores of a process together, go whole.
      multiple: the elements in every chunk but the last are a multiple of this, so that a device's kernel may copy
        several at once.
    """

    count: int
    min_bytes: int
    multiple: int = 1024

    def sizes(self, elements: int) -> list[int]:
        """The elements of each chunk of an array with this many, of which all but the last have the same number."""
        most = self.multiple * math.ceil(elements / (self.count * self.multiple))
        return [min(most, elements - start) for start in range(0, elements, most)]

    def cut(self, pieces: Sequence[np.ndarray]) -> list[list[np.ndarray]]:
        """Cuts the array of each core, all of one shape, and gives a list of the cores' arrays for each chunk.

        Nothing is copied. Where the arrays go whole, that is one chunk. Small ones do, those whose elements do not
        follow one another in memory, and those of a type with less than a byte, which XLA cannot join.
        """
        first = pieces[0]
        if len(pieces) * first.nbytes < self.min_bytes or not all(p.flags.c_contiguous for p in pieces):
            return [list(pieces)]
        if jax.dtypes.itemsize_bits(first.dtype) < 8:
            return [list(pieces)]
        ends = np.cumsum(self.sizes(first.size))
        chunks = {id(p): np.split(p.reshape(-1), ends[:-1]) for p in pieces}  # an array of all cores stays one
        return [[chunks[id(p)][number] for p in pieces] for number in range(len(ends))]

    def at_once(self, function: Callable[[_Given], _Made], given: Sequence[_Given]) -> list[_Made]:
        """Calls a function for each chunk, in threads. Returns when all have returned, or raises one's error."""
        try:
            made = _threads(self.count).map(function, given)
        except RuntimeError:  # the interpreter ends: what runs at exit has no threads any more
            made = map(function, given)
        return list(made)


GPU_INPUTS = InputChunks(count=4, min_bytes=8 << 20)
"""The chunks for GPUs. More threads take less each, and the host's memory sets the limit."""


@functools.cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "meshtf-inputs")


def joining_module(sizes: Sequence[int], shape: Sequence[int], element: str) -> str:
    """The text of a StableHLO module that joins flat arrays of these sizes to one of this shape.

    `element`: MLIR's name of their type, such as "f32".
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
