"""Allgather: every core receives the slices of all cores along some axes, concatenated along a dimension.

Two cores with [batch:8/rows] each send their slice of 4, and each ends with all 8.
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
from meshtf.planning.process_spans import ProcessOfCore, ring_bytes, span_of

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


@dataclasses.dataclass(frozen=True, slots=True)
class AllGather:
    """[heads:8/model] becomes [heads:8] on every core along `model`."""

    kind = "all_gather"
    reduction = None
    split_dim = None
    destinations = None

    axes: Axes
    concat_dim: int

    def bytes_sent(self, slice_bytes: int, mesh_shape: Shape) -> int:
        return slice_bytes * (axes_size(self.axes, mesh_shape) - 1)

    def bytes_between_processes(self, slice_bytes: int, mesh_shape: Shape, process_of_core: ProcessOfCore) -> int:
        groups = groups_over(self.axes, mesh_shape)
        span = span_of(groups, process_of_core)
        if span is None:
            return ring_bytes(groups, process_of_core, slice_bytes * (groups.shape[1] - 1))
        return span.groups_of_each * span.members * slice_bytes * (span.processes - 1)

    def scratch_bytes(self, sent: Value, received: Value, mesh_shape: Shape) -> int:
        """The bytes of a copy that puts received slices in order; 0 if they are received in their places."""
        return bytes_to_reorder(self.concat_dim, received) if axes_size(self.axes, mesh_shape) > 1 else 0

    def for_bucket(self) -> AllGather:
        return dataclasses.replace(self, concat_dim=0)

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        return collectives.all_gather(x, self.axes, self.concat_dim)

    def interpret(self, slices: Sequence[np.ndarray], groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return in_each_group(slices, groups, lambda group: [np.concatenate(group, self.concat_dim)] * len(group))
