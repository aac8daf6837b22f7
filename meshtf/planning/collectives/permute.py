"""Permute: each core sends its whole slice to one other core, and receives one slice.

On cols:3, `mtf.shift` by one slice sends core 0's slice to core 1, core 1's to core 2 and core 2's to core 0. The
destinations are (1, 2, 0).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.process_spans import ProcessOfCore, most_leaving

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


@dataclasses.dataclass(frozen=True, slots=True)
class Permute:
    """[x:8/rows] becomes [x:8/cols] where `rows` and `cols` have the same size: slices change places, and none is cut.

    destinations: the core to which each core sends its slice; the core itself if it keeps its slice.
    """

    kind = "permute"
    reduction = None
    split_dim = None
    concat_dim = None

    axes: Axes
    destinations: tuple[int, ...] = ()

    def bytes_sent(self, slice_bytes: int, mesh_shape: Shape) -> int:
        return slice_bytes

    def bytes_between_processes(self, slice_bytes: int, mesh_shape: Shape, process_of_core: ProcessOfCore) -> int:
        return most_leaving(self.destinations, process_of_core) * slice_bytes

    def scratch_bytes(self, sent: Value, received: Value, mesh_shape: Shape) -> int:
        """The bytes of gathers of two slices each. If cores exchange slices in pairs, there is one gather. Else there
        are two: one with the receiver of a core's slice, and one with the sender to it."""
        return (1 if is_exchange(self.destinations) else 2) * 2 * sent.slice_bytes

    def for_bucket(self) -> None:
        return None

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        return collectives.permute(x, self.destinations)

    def interpret(self, slices: Sequence[np.ndarray], groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
        sources = np.argsort(self.destinations)
        return [slices[source] for source in sources]


def is_exchange(destinations: Sequence[int]) -> bool:
    """Whether each core receives its slice from the core that it sends to."""
    return all(destinations[destination] == core for core, destination in enumerate(destinations))
