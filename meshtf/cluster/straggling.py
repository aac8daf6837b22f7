"""How long each process has waited for the others: who waits least is whom the others wait for."""

from __future__ import annotations

import dataclasses
import json

from meshtf.cluster.cluster import Cluster
from meshtf.mesh_impl.spmd.collective_runtime import collective_runtime
from meshtf_programs.strict_json import json_text


@dataclasses.dataclass(frozen=True)
class Waits:
    """Seconds that each process has spent in collectives between processes, such as since it joined.

    The time that values travel is in them, for all alike.
    """

    seconds: tuple[float, ...]

    @classmethod
    def of_all(cls, cluster: Cluster, seconds: float) -> Waits:
        """Of every process what it gives; called by all."""
        return cls(tuple(map(json.loads, cluster.gathered(cluster.meeting("waits"), json_text(seconds)))))

    @property
    def straggler(self) -> int:
        """The process for which the others waited most."""
        return min(range(len(self.seconds)), key=lambda process: self.seconds[process])

    def since(self, earlier: Waits) -> Waits:
        """Of the time after `earlier`, as of a step."""
        return Waits(tuple(now - then for now, then in zip(self.seconds, earlier.seconds, strict=True)))


def seconds_waited() -> float:
    """Of this process; its core that waited longest."""
    return collective_runtime().seconds_waited


def waits_of_all(cluster: Cluster) -> Waits:
    """Of every process; called by all, between steps."""
    return Waits.of_all(cluster, seconds_waited())
