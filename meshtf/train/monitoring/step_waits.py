"""Measures how long each process of a cluster waits for the others in a step."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from meshtf.cluster.cluster import Cluster
from meshtf.cluster.straggling import Waits, seconds_waited


class StepWaits:
    """Measures steps, except the first, which compiles. It leaves out work between them, such as an evaluation.

    Args:
      cluster: the cluster whose processes take the steps together. None: there is one process, which waits for nobody.
    """

    def __init__(self, cluster: Cluster | None) -> None:
        self._cluster = cluster
        self._has_compiled = False
        self._seconds, self._num_steps = 0.0, 0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Measures the body as one step."""
        if self._cluster is None:
            yield
            return
        before = seconds_waited()
        yield
        if self._has_compiled:
            self._seconds += seconds_waited() - before
            self._num_steps += 1
        self._has_compiled = True

    def by_process(self) -> dict[str, float]:
        """Returns the mean seconds of waiting in a step since the last call, as "waited_seconds/process_0". All
        processes call it.

        The process that the others wait for has the least. The result is empty if no step was measured, or there is no
        cluster.
        """
        if self._cluster is None or not self._num_steps:
            return {}
        waits = Waits.of_all(self._cluster, self._seconds / self._num_steps)
        self._seconds, self._num_steps = 0.0, 0
        return {f"waited_seconds/process_{i}": round(seconds, 6) for i, seconds in enumerate(waits.seconds)}
