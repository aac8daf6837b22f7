"""The facts about a core's groups: their keys, and the places of a group's blocks. Pure arithmetic.

The members of a group are in the order of the mesh, but TensorFlow ranks them in the order of their devices. Let cores
0, 1, 2 be on CPU:2, CPU:0, CPU:1. Then the group (0, 1, 2) has the ranks (2, 0, 1). A gather returns blocks by rank, so
the block of position 0 is the last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from meshtf.dimension import Shape
from meshtf.planning.core_positions import groups_over

LARGEST_ALLTOALL = 10
"""The largest group for TensorFlow's AllToAll. It fails in larger groups, because it names a block by two ranks without
a separator: ranks 1 and 11 give the same name as 11 and 1."""


@dataclasses.dataclass(frozen=True)
class GroupFacts:
    """The groups of cores over one ordered tuple of mesh axes.

    TensorFlow ranks the members of a group in the order of their devices, not of the mesh. `position` is a member's
    place in the mesh, row-major over the axes in the given order. `rank` is its place among the devices.
    """

    groups: np.ndarray  # int[groups, members]: the cores, by position
    rank: np.ndarray  # int[groups, members]: the rank of the member at a position

    @classmethod
    def of(cls, shape: Shape, axes: Sequence[str], order: Sequence[int] | np.ndarray) -> GroupFacts:
        """`order[core]` is the place of the core's device among all devices."""
        return cls.of_groups(groups_over(axes, shape), order)

    @classmethod
    def of_groups(cls, groups: np.ndarray, order: Sequence[int] | np.ndarray) -> GroupFacts:
        """`int[groups, members]`: the cores of each, by position."""
        # The argsort of an argsort is the rank of each member.
        return cls(groups, np.argsort(np.argsort(np.asarray(order)[groups], axis=1), axis=1))

    @property
    def size(self) -> int:
        """The number of members of a group."""
        return self.groups.shape[1]

    @property
    def in_order(self) -> bool:
        """Whether ranks equal positions in every group."""
        return bool((self.rank == np.arange(self.size)).all())

    def keys(self, group_key: Callable[[tuple[int, ...]], int]) -> np.ndarray:
        """`int[cores]`: the key of each core's group, given the key of a group of cores by rank."""
        keys = [group_key(tuple(by_rank)) for by_rank in np.take_along_axis(self.groups, np.argsort(self.rank), 1)]
        return self._by_core(np.broadcast_to(np.asarray(keys)[:, None, None], (*self.groups.shape, 1)))[:, 0]

    def ranks(self) -> np.ndarray:
        """`int[cores, members]`: for each position in the core's group, its rank."""
        return self._by_core(np.broadcast_to(self.rank[:, None, :], (*self.rank.shape, self.size)))

    def positions(self) -> np.ndarray:
        """`int[cores, members]`: for each rank in the core's group, its position."""
        inverse = np.argsort(self.rank, axis=1)
        return self._by_core(np.broadcast_to(inverse[:, None, :], (*self.rank.shape, self.size)))

    def own_position(self) -> np.ndarray:
        """`int[cores]`."""
        return self._by_core(np.broadcast_to(np.arange(self.size)[None, :, None], (*self.groups.shape, 1)))[:, 0]

    def partners(self) -> np.ndarray:
        """`int[cores, members]`: for each position in the core's group, the core there."""
        return self._by_core(np.broadcast_to(self.groups[:, None, :], (*self.groups.shape, self.size)))

    def partner_rows(self) -> np.ndarray:
        """`int[cores, members]`: for each position, its member's rank in the group of two with the core (itself: 0)."""
        return self._by_core((self.rank[:, None, :] > self.rank[:, :, None]).astype(int))

    def by_core(self, by_group: np.ndarray) -> np.ndarray:
        """`int[cores, n]`: for each core, the row of its group in `[groups, n]`."""
        return self._by_core(np.broadcast_to(by_group[:, None, :], (*self.groups.shape, by_group.shape[1])))

    def _by_core(self, by_group: np.ndarray) -> np.ndarray:
        """Reorders facts `[groups, members, n]` to `[cores, n]`."""
        result = np.empty((self.groups.size, by_group.shape[2]), np.int64)
        result[self.groups.reshape(-1)] = by_group.reshape(self.groups.size, -1)
        return result
