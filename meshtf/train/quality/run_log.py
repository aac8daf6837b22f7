"""A log in MLPerf's format: a line of JSON for each event, after `:::MLLOG`.

An object has the time in milliseconds, the kind of event, its key, a value and metadata.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TypeAlias

from meshtf_programs.strict_json import json_text

TOKEN = ":::MLLOG "

Value: TypeAlias = "str | int | float | bool | None"


class RunLog:
    """Writes the events of one run into a file, which it replaces.

    The time of an event counts from the beginning of the log, by a monotonic clock.

    Raises:
      OSError: if the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._began, self._began_ms = time.perf_counter(), time.time() * 1e3
        self._last_ms = 0
        path.write_text("")

    def event(self, key: str, value: Value = None, *, seconds_ago: float = 0.0, **metadata: Value) -> None:
        """Writes an event that has no duration, or ended `seconds_ago`. No line is earlier than the line before."""
        self._write("POINT_IN_TIME", key, value, metadata, seconds_ago)

    def start(self, key: str, *, seconds_ago: float = 0.0, **metadata: Value) -> None:
        """Writes the start of an interval: `key` is "run_start" for a run."""
        self._write("INTERVAL_START", key, None, metadata, seconds_ago)

    def stop(self, key: str, *, seconds_ago: float = 0.0, **metadata: Value) -> None:
        """Writes the end of an interval: `key` is "run_stop" for a run."""
        self._write("INTERVAL_END", key, None, metadata, seconds_ago)

    def _write(self, kind: str, key: str, value: Value, metadata: dict[str, Value], seconds_ago: float) -> None:
        elapsed = time.perf_counter() - self._began - seconds_ago
        self._last_ms = max(self._last_ms, round(self._began_ms + 1e3 * elapsed))
        line = {
            "namespace": "",
            "time_ms": self._last_ms,
            "event_type": kind,
            "key": key,
            "value": value,
            "metadata": metadata,
        }
        with self.path.open("a") as file:
            file.write(f"{TOKEN}{json_text(line)}\n")
