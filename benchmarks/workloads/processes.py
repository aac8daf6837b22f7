"""A training step that two processes of this machine run together."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import signal
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize

from benchmarks.measuring.side_by_side import Step
from meshtf_programs.addresses import Address
from meshtf_programs.launching.free_ports import free_ports

PROCESSES = 2
LAST = 1
"""The exit priority of letting the other process end, which comes before waiting for its end."""


@dataclasses.dataclass(frozen=True)
class OnTwoProcesses:
    """A program in two processes. The second process runs a step whenever this one does.

    Attributes:
      joined: makes the step in one of the processes, from its index and the addresses. It must be a module's function.
    """

    joined: Callable[[int, Sequence[str]], Step]

    def start(self) -> Callable[[], Step]:
        """Starts the second process, waits for its imports, and returns a function that makes the step."""
        addresses = [str(Address("127.0.0.1", port)) for port in free_ports(PROCESSES)]
        spawning = multiprocessing.get_context("spawn")
        ours, theirs = spawning.Pipe()
        other = spawning.Process(target=_follow, args=(theirs, self.joined, addresses), daemon=True)
        other.start()
        theirs.close()
        Finalize(None, ours.close, exitpriority=LAST)
        ours.recv()
        return functools.partial(self._lead, ours, addresses)

    def _lead(self, other: Connection, addresses: Sequence[str]) -> Step:
        other.send("join")
        step = self.joined(0, addresses)

        def both() -> float:
            other.send("step")
            loss = float(step())
            other.recv()
            return loss

        return both


def _follow(commands: Connection, joined: Callable[[int, Sequence[str]], Step], addresses: Sequence[str]) -> None:
    """Runs steps in the second process, until the first ends."""
    commands.send("imported")
    commands.recv()
    step = joined(1, addresses)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # the first process sends it if this one hangs
    while True:
        try:
            commands.recv()
        except EOFError:
            return
        float(step())
        commands.send("done")
