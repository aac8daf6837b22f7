"""Restarts a job after a failure, and decides how often, how soon and with which processes.

With --max_restarts=3 and --elastic, suppose process 2 of 4 dies. After one second, processes 0, 1 and 3 start again. If
three processes do not fit the mesh, two are started. After the next failure the wait is two seconds.
"""

from __future__ import annotations

import dataclasses
import signal
import sys
import time
from collections.abc import Callable, Sequence

from meshtf_programs.launching.command_line import PROGRAM
from meshtf_programs.launching.job import Ended

BAD_USAGE = 2
"""The status of errors that another start would not fix: a wrong flag or configuration, or a mesh that does not fit."""

_FIRST_WAIT, _LONGEST_WAIT = 1.0, 60.0


@dataclasses.dataclass(frozen=True)
class Restarts:
    """The rules for starting a job of `number` processes again.

    Attributes:
      number: how many processes the first start has.
      max_restarts: after how many failures to start again.
      is_elastic: whether only the remaining processes start again, as many of them as fit the program's mesh.
    """

    number: int
    max_restarts: int
    is_elastic: bool = False

    def run(self, run_once: Callable[[Sequence[int]], Ended]) -> int:
        """Runs the job, and returns the last status.

        `run_once`: starts the processes of these indices, and returns when all have ended.
        """
        everybody = list(range(self.number))
        present, wait, restarts = everybody, _FIRST_WAIT, 0
        while True:
            ended = run_once(present)
            if ended.status == 0 or ended.is_asked:
                return ended.status
            if ended.status == BAD_USAGE:
                if restarts == 0 or len(present) == self.number:
                    return ended.status
                present = present[:-1] or everybody
                _say(f"the mesh does not fit; starting again{self._with(present)}")
                continue
            if restarts == self.max_restarts:
                return ended.status
            restarts += 1
            left = [present[i] for i in ended.left]
            present = (left or everybody) if self.is_elastic else everybody
            again = f"start {restarts} of {self.max_restarts} again in {wait:g} s{self._with(present)}"
            _say(f"{again}; training continues from its last checkpoint")
            if (number := signal_within(wait)) is not None:
                return 128 + number
            wait = min(2 * wait, _LONGEST_WAIT)

    def _with(self, present: Sequence[int]) -> str:
        if len(present) == self.number:
            return ""
        return ", with 1 process" if len(present) == 1 else f", with {len(present)} processes"


def signal_within(seconds: float) -> int | None:
    """Returns the signal that arrives within this time and is not ignored, or None."""
    came: list[int] = []
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in numbers}
    end = time.monotonic() + seconds
    while not came and time.monotonic() < end:
        time.sleep(min(0.1, seconds))
    for number, handler in before.items():
        signal.signal(number, handler)
    return came[0] if came else None


def _say(text: str) -> None:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)
