"""The chunks in which a variable is saved: one replica of each slice, without padding, each layer under its own name.

For example, a variable [layers:2 hidden:8] is stacked over `layers`, and the mesh data:2;model:2 splits `hidden` over
`model`. It is saved as two tensors [8], one for each layer. Each has two chunks, [0:4] and [4:8]. The cores along
`data` have equal slices, so only one of them writes each chunk.
"""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
import tensorflow as tf

from meshtf.checkpoint._box import Box
from meshtf.dimension import Shape
from meshtf.lowering.variable_store import StoreEntry
from meshtf.mesh_impl.device_names import process_of

LARGEST_CHUNK = 32 << 20
"""The most bytes of a chunk. A reader that needs a part of a chunk reads all of it."""

WHOLE_TYPES = frozenset({tf.float16, tf.uint16, tf.uint32, tf.uint64})
"""Types whose slices TensorFlow cannot join (RestoreV2: "Dtype half not supported")."""


class Stored(Protocol):
    """The properties of a variable, or of its slices, that say where its parts are in a checkpoint."""

    @property
    def unpadded_shape(self) -> Shape: ...

    @property
    def stacked_dims(self) -> Shape: ...

    @property
    def saved_names(self) -> tuple[str, ...]: ...


@dataclasses.dataclass(frozen=True, slots=True)
class Chunk:
    """A box of a saved tensor, and its place on the cores.

    Attributes:
      tensor: the name it is saved under.
      shape: the shape of the whole saved tensor.
      dtype: the dtype of its elements.
      box: the part of the saved tensor that the chunk covers.
      variable: the variable's name in the store.
      core: a core that holds the chunk. None if it is joined from all cores, because its type must be saved whole.
      index: the index of the chunk in the core's slice, or in the whole variable if `core` is None.
      process: the process that writes it, if several processes hold the variable.
    """

    tensor: str
    shape: tuple[int, ...]
    dtype: tf.DType
    box: Box
    variable: str
    core: int | None
    index: tuple[int | slice, ...]
    process: int | None = None

    @property
    def num_bytes(self) -> int:
        return self.box.num_elements * self.dtype.size


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """One layer of a variable.

    Attributes:
      name: the name it is saved under.
      index: the index of the layer in the variable: its number in each stacked dimension, and all of the others.
    """

    name: str
    index: tuple[int | slice, ...]

    def box(self, box: Box) -> Box:
        """Returns the part of the layer that a box of the variable covers."""
        kept = [i for i, at in enumerate(self.index) if isinstance(at, slice)]
        return Box(tuple(box.start[i] for i in kept), tuple(box.size[i] for i in kept))

    def index_in(self, held: Box, box: Box) -> tuple[int | slice, ...]:
        """Returns the index of a box of the layer in a slice that holds the box `held` of the variable."""
        inner = iter(box.relative_to(self.box(held)).slices)
        return tuple(
            next(inner) if isinstance(at, slice) else at - start
            for at, start in zip(self.index, held.start, strict=True)
        )


def saved_shape(variable: Stored) -> tuple[int, ...]:
    """Returns the shape of each tensor that a variable is saved as."""
    return tuple(d.size for d in variable.unpadded_shape if not variable.stacked_dims.has(d.name))


def layers_in(variable: Stored, box: Box) -> Iterator[Layer]:
    """Yields the layers that a box of the variable touches, in row-major order of its stacked dimensions.

    A variable without stacked dimensions is one layer.
    """
    axes = [variable.unpadded_shape.axis(d.name) for d in variable.stacked_dims]
    sizes = variable.stacked_dims.to_integer_list
    for numbers in itertools.product(*(range(box.start[i], box.start[i] + box.size[i]) for i in axes)):
        index: list[int | slice] = [slice(None)] * variable.unpadded_shape.ndims
        for axis, number in zip(axes, numbers, strict=True):
            index[axis] = number
        place = int(np.ravel_multi_index(numbers, sizes)) if sizes else 0
        yield Layer(variable.saved_names[place], tuple(index))


def boxes(variable: StoreEntry) -> dict[Box, list[int]]:
    """Returns each distinct box of the variable on this process's cores, without padding, with the cores that hold
    it.
    """
    found: dict[Box, list[int]] = {}
    for core in variable.slices:
        found.setdefault(Box.of_slices(variable.box(core)), []).append(core)
    return found


def saved_boxes(variable: StoreEntry) -> dict[Box, int]:
    """Returns each distinct box of the variable on the whole mesh, with the core whose process writes it.

    If several processes hold the same boxes, they share the writing.
    """
    holders: dict[Box, dict[int, int]] = {}
    for core in range(variable.num_cores):
        box = Box.of_slices(variable.box(core))
        holders.setdefault(box, {}).setdefault(process_of(variable.devices[core]), core)
    # Different variables begin with different processes. Otherwise process 0 would write every small variable.
    start = zlib.crc32(variable.name.encode())
    chosen = {}
    for number, (box, first_cores) in enumerate(holders.items(), start):
        cores = list(first_cores.values())
        chosen[box] = cores[number % len(cores)]
    return chosen


def is_put_together(variable: StoreEntry) -> bool:
    """Tells whether a variable is saved as one chunk.

    This is so if its type must be saved whole and this process has all of it, or if it has no elements.
    """
    is_here = len(set(map(process_of, variable.devices))) == 1
    return (variable.dtype in WHOLE_TYPES and is_here) or not variable.unpadded_shape.size


def chunks_of(variables: Iterable[StoreEntry], largest: int = LARGEST_CHUNK) -> Iterator[Chunk]:
    """Yields the chunks that all processes together write for these variables, each of at most `largest` bytes."""
    for variable in variables:
        whole = Box.whole(variable.unpadded_shape.to_integer_list)
        if is_put_together(variable):
            yield from _in_box(variable, whole, None, max(whole.num_elements, 1))
            continue
        for box, core in saved_boxes(variable).items():
            if box.num_elements:
                yield from _in_box(variable, box, core, max(largest // variable.dtype.size, 1))


def _in_box(variable: StoreEntry, held: Box, core: int | None, max_elements: int) -> Iterator[Chunk]:
    shape = saved_shape(variable)
    processes = [process_of(device) for device in variable.devices]
    process = processes[core or 0] if len(set(processes)) > 1 else None
    for layer in layers_in(variable, held):
        for box in layer.box(held).subdivided(max_elements):
            index = layer.index_in(held, box)
            yield Chunk(layer.name, shape, variable.dtype, box, variable.name, core, index, process)
