"""Reduce-scatter: sums over the cores along some axes, and each core keeps its block of a dimension of the sum.

Two cores with terms of a sum [batch:8] each send the half that the other keeps. Each ends with 4 elements of the sum.
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
from meshtf.planning.collectives._reduced_arrays import reduced
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.core_positions import groups_over
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.process_spans import ProcessOfCore, exchanged_bytes, span_of

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


_SUMMED_IN_FLOAT32 = (tf.bfloat16, tf.float16)


@dataclasses.dataclass(frozen=True, slots=True)
class ReduceScatter:
    """Terms of [d_ff:16], a sum pending over `data`, become [d_ff:16/data]."""

    kind = "reduce_scatter"
    concat_dim = None
    destinations = None

    axes: Axes
    split_dim: int

    @property
    def reduction(self) -> Reduction:
        return "add"

    def bytes_sent(self, slice_bytes: int, mesh_shape: Shape) -> int:
        n = axes_size(self.axes, mesh_shape)
        return slice_bytes * (n - 1) // n

    def bytes_between_processes(self, slice_bytes: int, mesh_shape: Shape, process_of_core: ProcessOfCore) -> int:
        groups = groups_over(self.axes, mesh_shape)
        span = span_of(groups, process_of_core)
        if span is None:
            return exchanged_bytes(groups, process_of_core, slice_bytes // groups.shape[1])
        return span.groups_of_each * slice_bytes * (span.processes - 1) // span.processes

    def scratch_bytes(self, sent: Value, received: Value, mesh_shape: Shape) -> int:
        """The bytes of all terms of a core's block, of blocks cut out beforehand, and of narrow numbers widened for the
        sum."""
        if axes_size(self.axes, mesh_shape) == 1:
            return 0
        return bytes_to_reorder(self.split_dim, sent) + sent.slice_bytes + _widened(sent)

    def for_bucket(self) -> ReduceScatter:
        return dataclasses.replace(self, split_dim=0)

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        return collectives.reduce_scatter(x, self.axes, self.split_dim)

    def interpret(self, slices: Sequence[np.ndarray], groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
        return in_each_group(slices, groups, self._received)

    def _received(self, group: Sequence[np.ndarray]) -> list[np.ndarray]:
        return np.split(reduced(group, self.reduction), len(group), self.split_dim)


def _widened(value: Value) -> int:
    """The bytes of the float32 copy of the terms with which narrow numbers are summed."""
    if value.dtype not in _SUMMED_IN_FLOAT32:
        return 0
    return value.slice_bytes // value.dtype.size * tf.float32.size
