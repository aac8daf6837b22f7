"""Measures the time for which a process runs, without the time while it is stopped (SIGSTOP, debugger, held job)."""

from __future__ import annotations

import time
from collections.abc import Callable


class RunningTime:
    """A clock that one thread reads repeatedly. The time between two readings counts only up to a limit.

    A stopped process does not read the clock, and cannot tell otherwise that it was stopped. So a long time between two
    readings is taken as a stop.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked_at = clock()
        self._seconds = 0.0

    def advance(self, longest: float) -> float:
        """The seconds so far. The time since the last reading counts as `longest` at most."""
        now = self._clock()
        self._seconds += min(now - self._looked_at, longest)
        self._looked_at = now
        return self._seconds
