"""Connects processes through plain sockets, since TensorFlow would wait for ever for a missing process.

1. Every process binds its port.
2. Each process connects to process 0 and sends its index, its address and its facts.
3. When all have connected, process 0 sends each the addresses of all, and a text that is unique to this start.

Until then process 0 reports every ten seconds which processes are missing. It refuses a process with another token, or
with other facts.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import secrets
import selectors
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from meshtf.cluster._listening import listen, listening_socket
from meshtf.cluster._messages import BadMessageError, Line
from meshtf.cluster.process_addresses import ProcessAddresses, numeric_host, resolved
from meshtf.errors import ClusterError
from meshtf_programs.addresses import Address

_LOG = logging.getLogger("meshtf.cluster")
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_TRIES = 0.2
_SECONDS_TO_ANSWER = 5.0
_STRANGER_SECONDS = 3.0
"""How long another program may answer at the leader's address, such as an earlier job that is ending."""


_STRANGER = """\
the process that answers at {leader} is not waiting for others: it belongs to another job on that port, or to this \
job, which has started without this process"""


@dataclasses.dataclass(frozen=True)
class Joined:
    """The addresses of all processes, this process's port, and a text that is unique to this start."""

    addresses: tuple[str, ...]
    port: int
    nonce: str


@dataclasses.dataclass(frozen=True)
class JoinOptions:
    """Options of joining.

    Attributes:
      token: a secret text that all share. A process without it is refused.
      timeout_seconds: how long to wait for all.
      facts: facts that must be the same in all processes, by name.
      listen_port: the port of this process, if it differs from the port in its address.
    """

    token: str
    timeout_seconds: float
    facts: Mapping[str, str]
    listen_port: int | None = None


def rendezvous(processes: ProcessAddresses, options: JoinOptions) -> Joined:
    """Waits for all processes.

    Raises:
      ClusterError: if a process did not join in time (the message names it), or if its facts differ from this one's.
    """
    for address in processes.addresses or (processes.leader,):
        resolved(address, processes.source)
    with contextlib.ExitStack() as held:
        listening = held.enter_context(listening_socket(processes, options.listen_port)) if processes.own else None
        if processes.process_index == 0:
            assert listening is not None
            return _Leader(processes, options, listening).gather()
        return _follow(processes, options, listening, held)


class _Patience:
    """Reports every ten seconds which processes are missing, and gives up after the timeout."""

    def __init__(self, timeout_seconds: float) -> None:
        self._began = self._said = time.monotonic()
        self._timeout = timeout_seconds

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def says(self, missing: str) -> bool:
        """Reports `missing` if ten seconds have passed, and returns whether it did. Raises ClusterError at the end."""
        if self.seconds >= self._timeout:
            raise ClusterError(
                f"{missing} did not come within {self._timeout:g} seconds. Was it started, with the same "
                "addresses, and does a firewall let it through?"
            )
        if time.monotonic() - self._said < _SECONDS_BETWEEN_LINES:
            return False
        self._said = time.monotonic()
        _LOG.warning("waiting for %s, for %.0f seconds of %g", missing, self.seconds, self._timeout)
        return True


@dataclasses.dataclass
class _Guest:
    """A connection to process 0, and the index of its process, once that is known."""

    line: Line
    process: int | None = None
    address: str = ""


class _Leader:
    """The work of process 0 until all processes have joined."""

    def __init__(self, processes: ProcessAddresses, options: JoinOptions, listening: socket.socket) -> None:
        self._processes, self._options, self._listening = processes, options, listening
        self._guests: list[_Guest] = []
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)

    def gather(self) -> Joined:
        patience = _Patience(self._options.timeout_seconds)
        try:
            while missing := self._missing():
                if patience.says(missing):
                    self._tell_all({"waiting": missing, "seconds": patience.seconds})
                for key, _ in self._selector.select(_SECONDS_BETWEEN_TRIES):
                    self._hear(key.data)
            return self._go()
        except ClusterError as error:
            self._tell_all({"refused": str(error)})
            raise
        finally:
            self._selector.close()
            for guest in self._guests:
                guest.line.connection.close()

    def _go(self) -> Joined:
        by_process = {g.process: g.address for g in self._guests if g.process is not None}
        addresses = (self._processes.leader, *(by_process[i] for i in range(1, self._processes.num_processes)))
        nonce = secrets.token_hex(16)
        self._tell_all({"addresses": addresses, "nonce": nonce})
        return Joined(addresses, self._listening.getsockname()[1], nonce)

    def _missing(self) -> str:
        here = {guest.process for guest in self._guests}
        away = [i for i in range(1, self._processes.num_processes) if i not in here]
        return ", ".join(self._processes.name(i) for i in away)

    def _hear(self, guest: _Guest | None) -> None:
        if guest is None:
            with contextlib.suppress(OSError):  # a process that has disconnected counts as missing
                self._welcome(self._listening.accept()[0])
            return
        try:
            for message in guest.line.receive_available():
                self._take(guest, message)
        except BadMessageError:
            self._refuse(guest, "it has a different token; all processes of a job share one, and each job has its own")
        except (EOFError, OSError):
            self._forget(guest)

    def _welcome(self, connection: socket.socket) -> None:
        connection.settimeout(_SECONDS_TO_ANSWER)
        guest = _Guest(Line(connection, self._options.token))
        self._guests.append(guest)
        self._selector.register(connection, selectors.EVENT_READ, guest)
        guest.line.greet()

    def _take(self, guest: _Guest, hello: dict[str, Any]) -> None:
        process = int(hello["process_index"])
        name = self._processes.name(process) if 0 < process < self._processes.num_processes else f"process {process}"
        self._check_alike(name, hello)
        if any(g.process == process for g in self._guests) or process == 0:
            self._refuse(guest, f"{name} is there already; are two jobs started on one port, or one process twice?")
            return
        guest.address = str(hello["address"])
        _check_reached(name, guest.address)
        guest.process = process

    def _check_alike(self, name: str, hello: dict[str, Any]) -> None:
        own = _described(self._processes, self._options)
        for fact, value in own.items():
            if hello.get(fact) != value:
                raise ClusterError(
                    f"{name} and process 0 ({self._processes.leader}) differ in {fact.replace('_', ' ')}: "
                    f"{hello.get(fact)} and {value}"
                )

    def _refuse(self, guest: _Guest, why: str) -> None:
        _LOG.warning("refused a process that wanted to join: %s", why)
        with contextlib.suppress(OSError):
            guest.line.send({"refused": why})
        self._forget(guest)

    def _forget(self, guest: _Guest) -> None:
        self._selector.unregister(guest.line.connection)
        self._guests.remove(guest)
        guest.line.connection.close()

    def _tell_all(self, message: dict[str, Any]) -> None:
        for guest in self._guests:
            # Only processes that have joined need to know who is missing, but a refusal ends all of them.
            if guest.process is not None or "refused" in message:
                with contextlib.suppress(OSError):
                    guest.line.send(message)


def _described(processes: ProcessAddresses, options: JoinOptions) -> dict[str, Any]:
    """Returns the facts that must be the same in every process."""
    addresses = None if processes.addresses is None else ", ".join(processes.addresses)
    return {"number_of_processes": processes.num_processes, "addresses": addresses, **options.facts}


def _check_reached(name: str, address: str) -> None:
    host, port = resolved(address, name)
    try:
        socket.create_connection((host, port), _SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise ClusterError(
            f"{name} says that it is at {address}, but process 0 cannot reach it there: {error.strerror or error}"
        ) from None


def _follow(
    processes: ProcessAddresses, options: JoinOptions, listening: socket.socket | None, held: contextlib.ExitStack
) -> Joined:
    patience = _Patience(options.timeout_seconds)
    while True:
        with contextlib.closing(_reached_leader(processes, patience)) as connection:
            if listening is None:
                listening = held.enter_context(listen(numeric_host(connection.getsockname()), options.listen_port or 0))
            try:
                line = _greeted(connection, options.token)
                if line is not None:
                    return _joined(line, processes, options, listening, patience)
                # An earlier job that is ending may still hold the port for a moment.
                if patience.seconds > _STRANGER_SECONDS:
                    raise ClusterError(_STRANGER.format(leader=processes.name(0)))
            except (OSError, EOFError):
                patience.says(processes.name(0))
        time.sleep(_SECONDS_BETWEEN_TRIES)


def _greeted(connection: socket.socket, token: str) -> Line | None:
    """Returns the line to process 0. If another program listens there, such as an earlier job, it returns None."""
    line = Line(connection, token)
    try:
        line.take_greeting()
    except BadMessageError:
        return None
    return line


def _joined(
    line: Line, processes: ProcessAddresses, options: JoinOptions, listening: socket.socket, patience: _Patience
) -> Joined:
    leader = processes.name(0)
    line.send(_hello(processes, options, line.connection, listening))
    try:
        for message in _messages(line, patience, leader):
            if "refused" in message:
                own = processes.name(processes.process_index)
                raise ClusterError(f"{leader} refused {own}: {message['refused']}")
            if "nonce" in message:
                port = listening.getsockname()[1]
                return Joined(tuple(message["addresses"]), port, str(message["nonce"]))
            _LOG.warning("%s waits for %s, for %.0f seconds", leader, message["waiting"], message["seconds"])
    except BadMessageError:
        raise ClusterError(f"{leader} has a different token; all processes of a job share one") from None
    raise EOFError


def _hello(
    processes: ProcessAddresses, options: JoinOptions, connection: socket.socket, listening: socket.socket
) -> dict[str, Any]:
    seen = Address(numeric_host(connection.getsockname()), listening.getsockname()[1])
    address = processes.own or str(seen)
    return {"process_index": processes.process_index, "address": address, **_described(processes, options)}


def _messages(line: Line, patience: _Patience, leader: str) -> Iterator[dict[str, Any]]:
    while True:
        line.connection.settimeout(_SECONDS_BETWEEN_LINES * 2)  # process 0 sends a line every ten seconds
        try:
            yield line.receive()
        except TimeoutError:
            patience.says(f"a message from {leader}")


def _reached_leader(processes: ProcessAddresses, patience: _Patience) -> socket.socket:
    """Returns a connection to process 0, which may start later than this process."""
    address = resolved(processes.leader, processes.source)
    while True:
        try:
            connection = socket.create_connection(address, _SECONDS_TO_ANSWER)
            connection.settimeout(_SECONDS_TO_ANSWER)
            return connection
        except OSError:
            patience.says(processes.name(0))
            time.sleep(_SECONDS_BETWEEN_TRIES)
