"""Alltoall: a split moves from one dimension to another.

Two cores with [batch:8/rows width:8] each hold 4 rows. Each keeps half of its columns and sends the other half. Then
each holds 4 columns of all rows, [batch:8 width:8/rows].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes, axes_size
from meshtf.planning.collectives._blocks_in_memory import bytes_to_reorder, in_each_group
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.core_positions import groups_over
from meshtf.planning.process_spans import ProcessOfCore, exchanged_bytes

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


@dataclasses.dataclass(frozen=True, slots=True)
class AllToAll:
    """[batch:8/rows length:16] becomes [batch:8 length:16/rows]: each core sends one block of `length` to each other
    core.

    split_dim: the dimension that is split afterwards; concat_dim: the dimension that is whole afterwards.
    """

    kind = "all_to_all"
    reduction = None
    destinations = None

    axes: Axes
    split_dim: int
    concat_dim: int

    def bytes_sent(self, slice_bytes: int, mesh_shape: Shape) -> int:
        n = axes_size(self.axes, mesh_shape)
        return slice_bytes * (n - 1) // n

    def bytes_between_processes(self, slice_bytes: int, mesh_shape: Shape, process_of_core: ProcessOfCore) -> int:
        groups = groups_over(self.axes, mesh_shape)
        return exchanged_bytes(groups, process_of_core, slice_bytes // groups.shape[1])

    def scratch_bytes(self, sent: Value, received: Value, mesh_shape: Shape) -> int:
        """The bytes of the copies that cut out blocks before the exchange, and put blocks in order after it."""
        if axes_size(self.axes, mesh_shape) == 1:
            return 0
        return bytes_to_reorder(self.split_dim, sent) + bytes_to_reorder(self.concat_dim, received)

    def for_bucket(self) -> None:
        return None

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        return collectives.all_to_all(x, self.axes, self.split_dim, self.concat_dim)

    def interpret(self, slices: Sequence[np.ndarray], groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return in_each_group(slices, groups, self._received)

    def _received(self, group: Sequence[np.ndarray]) -> list[np.ndarray]:
        blocks = [np.split(x, len(group), self.split_dim) for x in group]
        return [np.concatenate([own[position] for own in blocks], self.concat_dim) for position in range(len(group))]
