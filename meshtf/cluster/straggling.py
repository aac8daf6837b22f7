"""Measures how long each process has waited for the others. The slowest process is the one that waits least."""

from __future__ import annotations

import dataclasses
import json

from meshtf.cluster.cluster import Cluster
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf_programs.strict_json import json_text


@dataclasses.dataclass(frozen=True)
class Waits:
    """The seconds that each process has spent in collectives between processes, in total or in an interval.

    They include the time for transferring values, which is the same for all.
    """

    seconds: tuple[float, ...]

    @classmethod
    def of_all(cls, cluster: Cluster, seconds: float) -> Waits:
        """Returns the `seconds` of every process. All processes must call it."""
        return cls(tuple(map(json.loads, cluster.gathered(cluster.meeting("waits"), json_text(seconds)))))

    @property
    def straggler(self) -> int:
        """The process that the others waited for most."""
        return min(range(len(self.seconds)), key=lambda process: self.seconds[process])

    def since(self, earlier: Waits) -> Waits:
        """Returns the seconds after `earlier`, such as those of a step."""
        return Waits(tuple(now - then for now, then in zip(self.seconds, earlier.seconds, strict=True)))


def seconds_waited() -> float:
    """Returns the seconds of this process, from its core that waited longest."""
    return collective_runtime().seconds_waited


def waits_of_all(cluster: Cluster) -> Waits:
    """Returns the seconds of every process. All processes must call it, between steps."""
    return Waits.of_all(cluster, seconds_waited())
