"""Whether processes that a launcher had have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

SECONDS_TO_END = 500.0
"""Long enough for the busiest machine."""


def assert_all_end(pids: Sequence[int]) -> None:
    """Waits for it."""
    assert pids
    end = time.monotonic() + SECONDS_TO_END
    while any(map(is_running, pids)):
        assert time.monotonic() < end, f"one of {pids} runs on"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between the opening and the reading
        return False
