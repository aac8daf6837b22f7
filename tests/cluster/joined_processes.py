"""Processes that have joined, and run the functions that tests give them."""

from __future__ import annotations

import dataclasses
import gc
import os
import shutil
import signal
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

import meshtf as mtf
from tests.fresh_process import forking_context
from tests.own_ports import own_ports


@dataclasses.dataclass(frozen=True)
class Raised:
    """An error in a process: its type, its message, and where it came from."""

    kind: str
    message: str
    trace: str


class JoinedProcesses:
    """Some processes on the loopback. `run` has all of them call a function of the cluster and more arguments."""

    def __init__(
        self,
        number: int,
        cpus: int = 2,
        heartbeat_timeout_seconds: float = 4.0,
        ports: Sequence[int] | None = None,
        listen_ports: Mapping[int, int] | None = None,
    ) -> None:
        """`listen_ports`: of processes before which something stands at their own."""
        self.ports = list(ports or own_ports(number))
        self._folder = Path(tempfile.mkdtemp(prefix="joined_processes"))
        self._connections: list[Connection] = []
        self.processes: list[ForkServerProcess] = []
        for index in range(number):
            ours, theirs = forking_context().Pipe()
            options = {
                "addresses": [f"127.0.0.1:{port}" for port in self.ports],
                "process_index": index,
                "listen_port": (listen_ports or {}).get(index),
                "join_timeout_seconds": 120.0,
                "heartbeat_timeout_seconds": heartbeat_timeout_seconds,
            }
            arguments = [theirs, cpus, options, str(self._folder / f"stderr_{index}")]
            process = forking_context().Process(target=_serve, args=arguments, daemon=True)
            process.start()
            theirs.close()
            self._connections.append(ours)
            self.processes.append(process)
        assert self.answers() == [True] * number

    def run(self, function: Callable[..., Any], *arguments: Any, timeout_seconds: float = 170.0) -> list[Any]:
        """What each process returns, by index; an error of any fails the test."""
        self.start(function, *arguments)
        return self.returned(timeout_seconds)

    def returned(self, timeout_seconds: float = 170.0) -> list[Any]:
        """What each process returned, by index; an error of any fails the test."""
        results = self.answers(timeout_seconds)
        raised = [f"process {i}: {r.trace}" for i, r in enumerate(results) if isinstance(r, Raised)]
        assert not raised, "\n".join(raised)
        return results

    def start(self, function: Callable[..., Any], *arguments: Any) -> None:
        for index in range(len(self._connections)):
            self.start_in(index, function, *arguments)

    def start_in(self, index: int, function: Callable[..., Any], *arguments: Any) -> None:
        self._connections[index].send((function, arguments))

    def answers(self, timeout_seconds: float = 170.0, of: Sequence[int] | None = None) -> list[Any]:
        """What each process returned, or the error that it raised; fails where one says nothing in time."""
        found = []
        for index in range(len(self._connections)) if of is None else of:
            assert self._connections[index].poll(timeout_seconds), f"process {index} says nothing"
            found.append(self._connections[index].recv())
        return found

    def send_signal(self, index: int, number: signal.Signals) -> None:
        pid = self.processes[index].pid
        assert pid is not None
        os.kill(pid, number)

    def stderr(self, index: int) -> str:
        return (self._folder / f"stderr_{index}").read_text()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def _serve(connection: Connection, cpus: int, options: dict[str, Any], stderr: str) -> None:
    descriptor = os.open(stderr, os.O_WRONLY | os.O_CREAT)
    os.dup2(descriptor, 2)
    mtf.virtual_cpus(cpus)
    cluster = mtf.initialize_cluster(**options)
    connection.send(True)
    while True:
        function, arguments = connection.recv()
        try:
            connection.send(function(cluster, *arguments))
        except BaseException as error:  # what pytest raises is no Exception
            connection.send(Raised(type(error).__name__, str(error), traceback.format_exc()))
        gc.collect()  # Otherwise the programs of hundreds of tests fill the memory before Python collects them.
