"""Kills a launcher's processes if the launcher dies. After a SIGKILL the launcher cannot do that itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from types import TracebackType

_BEGUN, _ENDED = "begun", "ended"


class Guard:
    """A small process in a session of its own. It reads a pipe until the launcher closes it, or dies."""

    def __enter__(self) -> Guard:
        # Python runs this file by its path, without the user's packages. So it starts fast, and shares no state.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def begun(self, group: int) -> None:
        """Tells the guard that a group of processes exists, which must not outlive the launcher."""
        self._tell(_BEGUN, group)

    def ended(self, group: int) -> None:
        """Tells the guard that the group has ended. Its number may now be used by another group."""
        self._tell(_ENDED, group)

    def _tell(self, what: str, group: int) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # somebody has killed the guard, so the job continues without it
            self._process.stdin.write(f"{what} {group}\n")
            self._process.stdin.flush()


def watch(lines: Iterable[str]) -> None:
    """Reads lines about groups until the end, and then kills the groups that are left."""
    groups: set[int] = set()
    for line in lines:
        what, group = line.split()
        (groups.add if what == _BEGUN else groups.discard)(int(group))
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    watch(sys.stdin)
