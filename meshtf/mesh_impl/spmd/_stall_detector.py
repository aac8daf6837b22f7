"""Detects a collective that waits for ever, by counting how often each device enters and leaves one. Pure Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

Counter: TypeAlias = tuple[str, int]
"""A device, and the number of one of its tokens."""


@dataclasses.dataclass(frozen=True)
class Stall:
    """A collective that made no progress."""

    seconds: float
    waiting: tuple[str, ...]  # devices inside it
    absent: tuple[str, ...]  # devices that are inside no collective

    def __str__(self) -> str:
        absent = f"; in no collective: {_names(self.absent)}" if self.absent else ""
        return f"no progress for {self.seconds:g} seconds; waiting: {_names(self.waiting)}{absent}"


@dataclasses.dataclass(frozen=True)
class _Seen:
    value: int
    since: float


class StallDetector:
    """Observes counters that are odd while their device is inside a collective.

    The counter of a device that is idle or computes is even. There is no limit on that time.
    """

    def __init__(self) -> None:
        self._seen: dict[Counter, _Seen] = {}

    def observe(self, values: Mapping[Counter, int], timeouts: Mapping[str, float], now: float) -> Stall | None:
        """Takes the counters' values at time `now`; returns the stall if a device waited longer than its timeout."""
        for counter, value in values.items():
            seen = self._seen.get(counter)
            if seen is None or seen.value != value:
                self._seen[counter] = _Seen(value, now)
        waiting = {device for (device, _), value in values.items() if value % 2}
        late = [
            timeouts[device]
            for (device, token), value in values.items()
            if value % 2 and now - self._seen[device, token].since >= timeouts[device]
        ]
        if not late:
            return None
        absent = dict.fromkeys(device for device, _ in values if device not in waiting)
        in_order = dict.fromkeys(device for device, _ in values if device in waiting)
        return Stall(max(late), tuple(in_order), tuple(absent))


def _names(devices: tuple[str, ...]) -> str:
    return ", ".join(device.removeprefix("/device:") for device in devices)
