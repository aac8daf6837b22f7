"""The groups of a collective in stages: within each process, and across processes. Pure arithmetic.

Let cores 0 and 1 be in one process and cores 2 and 3 in another. The group (0, 1, 2, 3) becomes (0, 1) and (2, 3)
`within`, and (0, 2) and (1, 3) `across`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from meshtf.mesh_impl.spmd._group_facts import GroupFacts
from meshtf.planning.process_spans import ProcessOfCore, by_process, span_of


@dataclasses.dataclass(frozen=True)
class StageFacts:
    """Groups of cores over some mesh axes, divided by process. Each process has `members` cores of a group.

    A member's place in its group is process * members + member. Each core is in one group `within` its process, ordered
    by member, and in one group `across` processes, ordered by process.
    """

    within: GroupFacts | None  # None where there is one member in each process
    across: GroupFacts
    places: np.ndarray  # int[groups, size]: the position of the member at a place

    @classmethod
    def of(
        cls, facts: GroupFacts, order: Sequence[int] | np.ndarray, process_of_core: ProcessOfCore
    ) -> StageFacts | None:
        """The stages of these groups; None if the groups do not span processes evenly."""
        span = span_of(facts.groups, process_of_core)
        if span is None:
            return None
        places = by_process(facts.groups, process_of_core, span)
        cores = np.take_along_axis(facts.groups, places, 1).reshape(-1, span.processes, span.members)
        within = GroupFacts.of_groups(cores.reshape(-1, span.members), order) if span.members > 1 else None
        across = GroupFacts.of_groups(cores.transpose(0, 2, 1).reshape(-1, span.processes), order)
        return cls(within, across, places)

    @property
    def in_order(self) -> bool:
        """Whether places equal positions in every group."""
        return bool((self.places == np.arange(self.places.shape[1])).all())
