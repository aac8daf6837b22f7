"""The processes of one start: begun together, watched, and ended together."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from meshtf_programs.launching.guard import Guard
from meshtf_programs.launching.launched import MESHTF_LAUNCH, Launched
from meshtf_programs.launching.prefixed_lines import PrefixedLines, colour_of

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_SECONDS = 0.1


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a start ended: its status, and whether a signal had asked for it."""

    status: int
    is_asked: bool


class Job:
    """A command in so many processes.

    Args:
      command: the same for all.
      launched: what each is told.
      grace_seconds: from the failure of one to SIGTERM for the others, and from that to SIGKILL.
    """

    def __init__(self, command: Sequence[str], launched: Sequence[Launched], grace_seconds: float) -> None:
        self._command, self._launched, self._grace = list(command), launched, grace_seconds
        self._processes: list[subprocess.Popen[bytes]] = []
        self._readers: list[threading.Thread] = []
        self._asked: int | None = None
        self._guard, self._guarded = Guard(), set[int]()

    def run(self) -> Ended:
        """Returns when all have ended."""
        with self._guard, self._signals_passed_on():
            try:
                for launched in self._launched:
                    self._start(launched)
                first = self._wait_for_a_failure()
                if first is not None:
                    self._end_others()
            finally:
                self._kill_all()
        for reader in self._readers:
            reader.join(timeout=self._grace)
        status = 0 if first is None else _status(self._processes[first])
        return Ended(status or (128 + self._asked if self._asked and first is not None else 0), self._asked is not None)

    def _start(self, launched: Launched) -> None:
        environment = {**os.environ, MESHTF_LAUNCH: launched.to_text(), "PYTHONUNBUFFERED": "1"}
        # A session of its own: Ctrl-C reaches the launcher alone, which passes it on once.
        process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,
        )
        self._processes.append(process)
        self._guard.begun(process.pid)
        self._guarded.add(process.pid)
        index = launched.process_index
        for source, shown in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert source is not None
            lines = PrefixedLines(f"[{index}] ", colour_of(index, shown), shown)
            thread = threading.Thread(target=lines.copy, args=(source,), daemon=True)
            thread.start()
            self._readers.append(thread)

    def _wait_for_a_failure(self) -> int | None:
        """The process that failed first; None when all have ended well."""
        while True:
            ended = self._looked_at()
            failed = next((i for i, status in enumerate(ended) if status), None)
            if failed is not None or None not in ended:
                return failed
            time.sleep(_LOOK_EVERY_SECONDS)

    def _end_others(self) -> None:
        """They see by themselves that one is gone, and say so; what does not is asked to end."""
        self._wait(self._grace)
        self._send(signal.SIGTERM)
        self._wait(self._grace)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and None in self._looked_at():
            time.sleep(_LOOK_EVERY_SECONDS)

    def _looked_at(self) -> list[int | None]:
        """The status of each, None where it runs; the guard forgets those that do not."""
        statuses = [process.poll() for process in self._processes]
        for process, status in zip(self._processes, statuses, strict=True):
            if status is not None and process.pid in self._guarded:
                self._guarded.remove(process.pid)
                self._guard.ended(process.pid)
        return statuses

    def _kill_all(self) -> None:
        self._send(signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._looked_at()

    def _send(self, number: int) -> None:
        for process in self._processes:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)  # with what it has started itself

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        def pass_on(number: int, _: FrameType | None) -> None:
            self._asked = number
            self._send(number)

        before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _status(process: subprocess.Popen[bytes]) -> int:
    """As a shell gives it."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode
