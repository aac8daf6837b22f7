"""Allreduce: every core ends with the sum, product, maximum or minimum of the slices of the cores along some axes.

For a sum of [batch:8] over two cores, each core sends half of its slice, adds the half that it receives, and sends the
half that it summed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes, axes_size
from meshtf.planning.collectives._blocks_in_memory import in_each_group
from meshtf.planning.collectives._reduced_arrays import reduced
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.core_positions import groups_over
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.process_spans import ProcessOfCore, ring_bytes, span_of

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


@dataclasses.dataclass(frozen=True, slots=True)
class AllReduce:
    """The reduction of a group's slices, element by element: each core of the group receives the whole result."""

    kind = "all_reduce"
    split_dim = None
    concat_dim = None
    destinations = None

    axes: Axes
    reduction: Reduction = "add"

    def bytes_sent(self, slice_bytes: int, mesh_shape: Shape) -> int:
        n = axes_size(self.axes, mesh_shape)
        return 2 * slice_bytes * (n - 1) // n

    def bytes_between_processes(self, slice_bytes: int, mesh_shape: Shape, process_of_core: ProcessOfCore) -> int:
        groups = groups_over(self.axes, mesh_shape)
        span = span_of(groups, process_of_core)
        if span is None:
            n = groups.shape[1]
            return ring_bytes(groups, process_of_core, 2 * slice_bytes * (n - 1) // n)
        return span.groups_of_each * 2 * slice_bytes * (span.processes - 1) // span.processes

    def scratch_bytes(self, sent: Value, received: Value, mesh_shape: Shape) -> int:
        """The bytes of the parts received from other cores, before they are combined."""
        return sent.slice_bytes if axes_size(self.axes, mesh_shape) > 1 else 0

    def for_bucket(self) -> AllReduce:
        return self

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        return collectives.all_reduce(x, self.axes, self.reduction)

    def interpret(self, slices: Sequence[np.ndarray], groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return in_each_group(slices, groups, lambda group: [reduced(group, self.reduction)] * len(group))
