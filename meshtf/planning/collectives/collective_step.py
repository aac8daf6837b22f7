"""The protocol of a collective, for planning, passes, emission, the interpreter and reports.

A new kind is a frozen dataclass in a file beside this one, with a method of its name in `BackendCollectives`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.layout import Axes
from meshtf.planning.collectives.backend_collectives import BackendCollectives
from meshtf.planning.local_work.reductions import Reduction
from meshtf.planning.process_spans import ProcessOfCore

if TYPE_CHECKING:
    from meshtf.planning.plan import Value


class CollectiveStep(Protocol):
    """A collective without the tensor that it moves. Equal steps compare equal."""

    @property
    def kind(self) -> str:
        """The collective's name in reports and messages; no code decides by it."""
        ...

    @property
    def axes(self) -> Axes:
        """The mesh axes along which data moves."""
        ...

    @property
    def reduction(self) -> Reduction | None:
        """The way in which the collective combines the cores' slices; None where it only moves them."""
        ...

    @property
    def split_dim(self) -> int | None:
        """The dimension of the input that is cut into one block for each core; None if every core receives the whole
        input."""
        ...

    @property
    def concat_dim(self) -> int | None:
        """The dimension along which received blocks are concatenated; None if there is one block."""
        ...

    @property
    def destinations(self) -> tuple[int, ...] | None:
        """The core to which each core sends its slice; None if each core communicates with its whole group along
        `axes`."""
        ...

    def bytes_sent(self, slice_bytes: int, mesh_shape: Shape) -> int:
        """Bytes that each core must send, by the best algorithm, from a slice of so many bytes."""
        ...

    def bytes_between_processes(self, slice_bytes: int, mesh_shape: Shape, process_of_core: ProcessOfCore) -> int:
        """The most bytes that one process sends to other processes, for slices of `slice_bytes` on each core. The
        collective runs in stages if its groups lie evenly over the processes."""
        ...

    def scratch_bytes(self, sent: Value, received: Value, mesh_shape: Shape) -> int:
        """Bytes beside its input and its output: received blocks, and copies that put blocks in order."""
        ...

    def for_bucket(self) -> CollectiveStep | None:
        """The collective for a bucket, in which the flat slices of several collectives travel as one; None if this kind
        always travels alone."""
        ...

    def emit(self, collectives: BackendCollectives, x: tf.Tensor) -> tf.Tensor:
        """Adds the collective to the trace of a core's program, and returns the slice that the core holds then."""
        ...

    def interpret(self, slices: Sequence[np.ndarray], groups: Sequence[Sequence[int]]) -> list[np.ndarray]:
        """The slices that all cores hold after the collective, computed in NumPy.

        Args:
          slices: the slice of each core before the collective.
          groups: the groups of cores that differ along `axes` only, each in order of the position along `axes`.
        """
        ...
