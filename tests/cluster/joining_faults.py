"""Faults while processes find one another, drawn at random: each case is some forked processes, of sockets alone."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import signal
import socket
import time
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess

from meshtf.cluster._rendezvous import JoinOptions, rendezvous
from meshtf.cluster.process_addresses import ProcessAddresses
from meshtf.errors import ClusterError
from tests.cluster.proxy import Proxy
from tests.fresh_process import forking_context
from tests.own_ports import own_ports

KINDS = (
    "late", "missing", "killed", "stopped", "token", "facts", "number", "twin", "garbage", "silent", "cut", "occupied",
)  # fmt: skip
_TIMEOUT, _TIMEOUT_OF_JOINED, _OTHERS_COME = 10.0, 60.0, 2.0
"""Seconds to join: where some cannot, which all wait for, and where all can, however busy the machine is."""
_LONGEST = 100.0
"""Seconds until whoever has not ended hangs; a process that waits for a word looks at its own limit every 20 s."""


@dataclasses.dataclass(frozen=True)
class Told:
    """What a process says at its end: "joined" or its error, and from when to when it tried, by the system's clock."""

    outcome: str
    began: float
    ended: float


@dataclasses.dataclass(frozen=True)
class Case:
    """One fault.

    Attributes:
      kind: one of `KINDS`.
      number: of processes.
      victim: to which it happens.
      moment: seconds after the start at which it does; one other process comes only after that.
    """

    kind: str
    number: int
    victim: int
    moment: float

    @classmethod
    def drawn(cls, seed: int, kind: str | None = None) -> Case:
        draw = random.Random(seed)
        number = draw.randint(2, 4)
        chosen = kind or draw.choice(KINDS)
        least = 1 if chosen in ("twin", "token") else 0  # the leader's token is what the others' are compared with
        return cls(chosen, number, draw.randrange(least, number), draw.uniform(0.1, 1.5))

    @property
    def goes_on(self) -> bool:
        """Whether all join in spite of it."""
        return self.kind in ("late", "twin", "garbage", "silent")

    def problems(self) -> list[str]:
        """What is not as it should be, having run it."""
        with contextlib.ExitStack() as stack:
            told = _Run(self, stack).told()
        found = []
        for index, own in told.items():
            outcome = "" if own is None else own.outcome
            if own is None:
                found.append(f"process {index} hangs")
            elif outcome != "joined" and self.goes_on:
                found.append(f"process {index} did not join: {outcome}")
            elif outcome == "joined" and not (self.goes_on or self.kind in ("stopped", "cut")):
                found.append(f"process {index} joined")
            elif outcome != "joined" and not self._is_named(index, outcome) and not _missed(told.get(0), own):
                found.append(f"process {index} does not name who is at fault: {outcome}")
        return [f"{self}: {problem}" for problem in found]

    def _is_named(self, index: int, outcome: str) -> bool:
        if self.kind in ("number", "facts"):  # whoever comes after process 0 has ended for it misses process 0
            return "differ in " in outcome or "process 0" in outcome
        own = {"token": "token", "occupied": "in use"}
        if index == self.victim:
            return own.get(self.kind, "process ") in outcome
        return ("process " if self.kind == "cut" else f"process {self.victim}") in outcome


def _missed(leader: Told | None, own: Told) -> bool:
    """Whether process 0 had ended when this one began, or soon after, as on a busy machine; this one then says so."""
    return leader is not None and leader.ended - own.began < _TIMEOUT / 2 and "process 0 (" in own.outcome


class _Run:
    """A case, while it runs."""

    def __init__(self, case: Case, stack: contextlib.ExitStack) -> None:
        self._case, self._stack = case, stack
        self._ports, self._listen_ports = own_ports(case.number), dict[int, int]()
        self._pipes: dict[int, Connection] = {}
        self._processes: dict[int, ForkServerProcess] = {}
        self._twin: tuple[ForkServerProcess, Connection] | None = None

    def told(self) -> dict[int, Told | None]:
        """By process; None where it has said nothing. Of those that are there and able to."""
        case = self._case
        proxy = self._before()
        last = next(i for i in reversed(range(case.number)) if i != case.victim)
        absent = {last, *([case.victim] if case.kind in ("late", "missing") else [])}
        for index in set(range(case.number)) - absent:
            self._start(index)
        began = time.monotonic()
        time.sleep(case.moment)
        self._strike(proxy)
        time.sleep(max(_OTHERS_COME - (time.monotonic() - began), 0.0))
        self._start(last)
        silent = {case.victim} if case.kind in ("killed", "stopped") else set()
        return {index: self._told_by(index) for index in self._processes if index not in silent}

    def _before(self) -> Proxy | None:
        case = self._case
        if case.kind == "occupied":
            server = self._stack.enter_context(socket.create_server(("127.0.0.1", self._ports[case.victim])))
            server.listen()
        if case.kind != "cut":
            return None
        proxy = Proxy(self._ports[0])
        self._stack.callback(proxy.close)
        self._listen_ports[0], self._ports[0] = self._ports[0], proxy.port
        return proxy

    def _strike(self, proxy: Proxy | None) -> None:
        kind, victim = self._case.kind, self._case.victim
        if kind in ("killed", "stopped"):
            pid = self._processes[victim].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        elif kind == "late":
            self._start(victim)
        elif kind == "twin":
            self._start(victim, as_index=self._case.number)
            self._twin = self._processes.pop(self._case.number), self._pipes.pop(self._case.number)
        elif kind in ("garbage", "silent"):
            with contextlib.suppress(OSError):  # the leader may not be there yet
                stranger = self._stack.enter_context(socket.create_connection(("127.0.0.1", self._ports[0])))
                stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" if kind == "garbage" else b"")
        elif proxy is not None:
            proxy.stop_forwarding()

    def _start(self, index: int, as_index: int | None = None) -> None:
        key = index if as_index is None else as_index
        ours, theirs = forking_context().Pipe()
        process = forking_context().Process(target=_join, args=(theirs, *self._arguments(index)), daemon=True)
        process.start()
        theirs.close()
        self._pipes[key], self._processes[key] = ours, process
        self._stack.callback(process.join)
        self._stack.callback(process.kill)

    def _arguments(self, index: int) -> tuple[ProcessAddresses, JoinOptions]:
        is_odd = index == self._case.victim
        kind = self._case.kind if is_odd else ""
        ports = [*self._ports, *(own_ports(1) if kind == "number" else [])]
        addresses = ProcessAddresses.listed([f"127.0.0.1:{port}" for port in ports], index, "test")
        facts = {"devices": "4 CPU" if kind == "facts" else "2 CPU"}
        token = "another" if kind == "token" else "token"
        timeout = _TIMEOUT_OF_JOINED if self._case.goes_on else _TIMEOUT
        return addresses, JoinOptions(token, timeout, facts, self._listen_ports.get(index))

    def _told_by(self, index: int) -> Told | None:
        try:
            return self._pipes[index].recv() if self._pipes[index].poll(_LONGEST) else None
        except EOFError:
            return Told("ended without a word", 0.0, 0.0)


def _join(connection: Connection, processes: ProcessAddresses, options: JoinOptions) -> None:
    began = time.monotonic()
    try:
        rendezvous(processes, options)
        outcome = "joined"
    except ClusterError as error:
        outcome = str(error)
    connection.send(Told(outcome, began, time.monotonic()))
