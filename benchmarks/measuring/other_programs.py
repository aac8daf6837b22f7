"""Measures how much processor time other programs used while a benchmark ran."""

from __future__ import annotations

import dataclasses
import os
import resource
import time


@dataclasses.dataclass(frozen=True)
class ProcessorTime:
    """Seconds by the clock, busy seconds of all processors, and their part for this process and its ended children.

    The busy seconds are None if the kernel does not report them.
    """

    clock: float
    busy: float | None
    own: float

    @classmethod
    def now(cls) -> ProcessorTime:
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return cls(time.monotonic(), _busy_seconds(), sum(each.ru_utime + each.ru_stime for each in used))

    def others_since(self, before: ProcessorTime) -> float | None:
        """The share of all processors that other programs used, from 0 to 1."""
        if self.busy is None or before.busy is None:
            return None
        others = self.busy - before.busy - (self.own - before.own)
        return max(0.0, others / (self.clock - before.clock) / (os.cpu_count() or 1))


def _busy_seconds() -> float | None:
    """The busy seconds of all processors since the machine started: neither idle nor waiting for disks."""
    try:
        with open("/proc/stat") as lines:
            user, nice, system, _, _, *rest = map(int, next(lines).split()[1:9])
    except (OSError, StopIteration, ValueError):
        return None
    busy = (user + nice + system + sum(rest)) / os.sysconf("SC_CLK_TCK")
    return busy or None
