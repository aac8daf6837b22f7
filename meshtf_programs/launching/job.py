"""Runs the processes of one start: starts them together, watches them, and ends them together."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import IO, TextIO

from meshtf_programs.launching.guard import Guard
from meshtf_programs.launching.launched import Launched
from meshtf_programs.launching.prefixed_lines import PrefixedLines, colour_of
from meshtf_programs.launching.ssh import UNREACHABLE
from meshtf_programs.launching.started_process import StartedProcess, Starter

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK_EVERY_SECONDS = 0.1
_LONGEST_READING_SECONDS = 15.0
_SIGNALLED = 128


@dataclasses.dataclass(frozen=True)
class Ended:
    """The end of a start.

    Attributes:
      status: the exit status of the process that failed first.
      is_asked: whether a signal to the launcher requested it.
      left: the indices of the processes that were not lost. A process is lost if a signal ended it, if the launcher
        had to end it, or if its host was not reached.
      words: sentences to print about the end.
    """

    status: int
    is_asked: bool
    left: tuple[int, ...]
    words: tuple[str, ...] = ()


class Job:
    """A command in several processes.

    Args:
      command: the command, the same for all.
      launched: the facts that each process receives.
      starters: the objects that start the processes.
      grace_seconds: the time from the first failure to SIGTERM for the others, and then to SIGKILL.
    """

    def __init__(
        self, command: Sequence[str], launched: Sequence[Launched], starters: Sequence[Starter], grace_seconds: float
    ) -> None:
        self._command, self._launched, self._grace = list(command), launched, grace_seconds
        self._starters = starters
        self._processes: list[StartedProcess] = []
        self._readers: list[threading.Thread] = []
        self._last_lines: dict[int, str] = {}
        self._asked: int | None = None
        self._guard, self._guarded = Guard(), set[int]()

    def run(self) -> Ended:
        """Runs all processes, and returns when all have ended."""
        own_ends: list[int | None] = []
        with self._guard, self._signals_passed_on():
            try:
                for launched, starter in zip(self._launched, self._starters, strict=True):
                    self._begin(starter.start(self._command, launched))
                first = self._wait_for_a_failure()
                if first is not None:
                    self._wait(self._grace)  # meanwhile the others notice the loss and report it
                    own_ends = self._looked_at()
                    self._send(signal.SIGTERM)
                    self._wait(self._grace)
            finally:
                self._kill_all()
        self._read_to_the_end()
        status = 0 if first is None else _shells(self._processes[first].popen.returncode)
        left = tuple(i for i, end in enumerate(own_ends) if not _is_loss(end))
        told = [process.explained(self._last_lines.get(process.index, "")) for process in self._processes]
        if first is not None and self._asked is None:
            told.insert(0, self._signal_of(self._processes[first]))
        return Ended(status, self._asked is not None, left, tuple(words for words in told if words))

    def _signal_of(self, process: StartedProcess) -> str:
        """Returns a sentence if a signal ended a process, which could not say so itself."""
        number = -process.popen.returncode
        if number <= 0:
            return ""
        hint = "; Linux sends it if memory is short" if number == signal.SIGKILL else ""
        return f"process {process.index} was ended by signal {number} ({signal.strsignal(number)}){hint}"

    def _begin(self, process: StartedProcess) -> None:
        self._processes.append(process)
        self._guard.begun(process.popen.pid)
        self._guarded.add(process.popen.pid)
        for source, shown in ((process.popen.stdout, sys.stdout), (process.popen.stderr, sys.stderr)):
            assert source is not None
            thread = threading.Thread(target=self._copy, args=(process.index, source, shown), daemon=True)
            thread.start()
            self._readers.append(thread)

    def _copy(self, index: int, source: IO[bytes], shown: TextIO) -> None:
        last = PrefixedLines(f"[{index}] ", colour_of(index, shown), shown).copy(source)
        if shown is sys.stderr:
            self._last_lines[index] = last

    def _wait_for_a_failure(self) -> int | None:
        """Returns the index of the process that failed first, or None when all have succeeded."""
        while True:
            ended = self._looked_at()
            failed = next((i for i, status in enumerate(ended) if status), None)
            if failed is not None or None not in ended:
                return failed
            time.sleep(_LOOK_EVERY_SECONDS)

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and None in self._looked_at():
            time.sleep(_LOOK_EVERY_SECONDS)

    def _looked_at(self) -> list[int | None]:
        """Returns the status of each process, or None while it runs. The guard forgets ended processes."""
        statuses = [process.popen.poll() for process in self._processes]
        for process, status in zip(self._processes, statuses, strict=True):
            if status is not None and process.popen.pid in self._guarded:
                self._guarded.remove(process.popen.pid)
                self._guard.ended(process.popen.pid)
        return statuses

    def _kill_all(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
        self._looked_at()

    def _read_to_the_end(self) -> None:
        """Reads the last output of the processes. The time is limited, because their children may hold the pipes open
        for ever.
        """
        end = time.monotonic() + _LONGEST_READING_SECONDS
        for reader in self._readers:
            reader.join(timeout=max(end - time.monotonic(), 0.0))

    def _send(self, number: int) -> None:
        for process in self._processes:
            process.send(number)

    @contextlib.contextmanager
    def _signals_passed_on(self) -> Iterator[None]:
        def pass_on(number: int, _: FrameType | None) -> None:
            self._asked = number
            self._send(number)

        # A signal that is ignored, as SIGHUP is under nohup, stays ignored, here and in the processes.
        wanted = [number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN]
        before = {number: signal.signal(number, pass_on) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _shells(returncode: int) -> int:
    """Returns the exit status that a shell would report."""
    return returncode if returncode >= 0 else _SIGNALLED - returncode


def _is_loss(returncode: int | None) -> bool:
    """Tells whether a process was lost, from its status after the grace period. None: it had not ended."""
    return returncode is None or returncode == UNREACHABLE or _shells(returncode) > _SIGNALLED
