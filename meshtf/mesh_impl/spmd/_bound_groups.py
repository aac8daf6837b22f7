"""The groups of the running core, inside the trace of a per-core program. Facts that differ by core are tensors."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

FORWARD, BACKWARD, BETWEEN_PROCESSES = 0, 1, 2
"""The tokens of a device. Each orders the collectives that use it, in the same way on all cores. A core that waits in a
collective waits for another core to reach an earlier place of the program. So collectives of different tokens never
deadlock."""


@dataclasses.dataclass(frozen=True)
class BoundPairs:
    """The pairs in a group too large for AllToAll, so blocks move in pairs. Vectors are by position in the group."""

    own_position: tf.Tensor  # int32[]
    keys: tf.Tensor  # int32[members]: of the group of two with the member there
    rows: tf.Tensor  # int32[members]: the member's rank in it


@dataclasses.dataclass(frozen=True)
class BoundGroup:
    """The group of the running core over one tuple of mesh axes."""

    size: int
    key: tf.Tensor  # int32[]
    ranks: tf.Tensor | None  # int32[members]: of each position; None where ranks are positions in every group
    positions: tf.Tensor | None  # int32[members]: of each rank
    pairs: BoundPairs | None
    crosses: bool = False  # processes
    token: int = FORWARD


@dataclasses.dataclass(frozen=True)
class BoundStages:
    """The group of the running core over mesh axes that span processes, as two groups that contain the core.

    Places in the group are numbered by process first, then by member.
    """

    size: int
    within: BoundGroup | None  # of its process, by member; None where the core is the only one there
    across: BoundGroup  # of the members of its number, by process
    places: tf.Tensor | None  # int32[size]: the position at each place; None where places are positions in every group
    placed: tf.Tensor | None  # int32[size]: the place of each position

    @property
    def members(self) -> int:
        """The number of the group's members in each process."""
        return self.within.size if self.within else 1


@dataclasses.dataclass(frozen=True)
class BoundPermutation:
    """The running core's two groups in a permutation: with the core that it sends to, and with its sender."""

    send_key: tf.Tensor  # int32[]
    receive_key: tf.Tensor | None  # int32[]; None where cores exchange: it is the same group
    row: tf.Tensor  # int32[]: the sender's rank in the group with it
    moves: tf.Tensor | None  # int32[]: 0 on a core that keeps its own values; None where no core does
