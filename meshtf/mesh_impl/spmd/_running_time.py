"""Time in which a process runs: while it is stopped (SIGSTOP, a debugger, a job that is held), nothing can stall."""

from __future__ import annotations

import time
from collections.abc import Callable


class RunningTime:
    """A clock for one thread that looks again and again: what lies between two looks counts for so much and no more.

    A process that is stopped does not look, and has no other sign of having been stopped.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._seconds = 0.0

    def advance(self, longest: float) -> float:
        """Seconds so far, of which those since the look before count as `longest` at most."""
        now = self._clock()
        self._seconds += min(now - self._looked_at, longest)
        self._looked_at = now
        return self._seconds
