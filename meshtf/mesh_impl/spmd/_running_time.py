"""Measures the time in which a process runs. Nothing stalls while it is stopped (SIGSTOP, a debugger, a held job)."""

from __future__ import annotations

import time
from collections.abc import Callable


class RunningTime:
    """A clock for one thread that looks again and again. The time between two looks counts up to a limit.

    A process that is stopped does not look, and has no other sign of having been stopped. So a long time between two
    looks is a stop, and not time in which the process ran.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._seconds = 0.0

    def advance(self, longest: float) -> float:
        """The seconds so far. The time since the last look counts as `longest` at most."""
        now = self._clock()
        self._seconds += min(now - self._looked_at, longest)
        self._looked_at = now
        return self._seconds
