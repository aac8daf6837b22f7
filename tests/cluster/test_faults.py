"""A process that dies, is stopped or is cut off is named by the others, with what they waited in."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.cluster.cluster import Cluster
from meshtf.errors import ProcessLostError
from tests.cluster.joined_processes import JoinedProcesses, Raised, free_ports

pytestmark = pytest.mark.timeout(400)


def start_steps(processes: JoinedProcesses, folder: Path) -> None:
    processes.start(step_for_ever, folder / "stepping")
    end = time.monotonic() + 120
    while not (folder / "stepping").exists():
        assert time.monotonic() < end
        time.sleep(0.1)


def step_for_ever(cluster: Cluster, sign: Path) -> None:
    rows = mtf.Dimension("rows", 4 * cluster.num_processes)
    mesh_impl = mtf.SpmdMeshImpl(f"all:{2 * cluster.num_processes}", "rows:all")
    step = mtf.function(lambda x: mtf.reduce_sum(x), mesh_impl, {"x": mtf.TensorSpec([rows])}, name="endless")
    x = np.ones([rows.size], np.float32)
    step(x=x)
    cluster.barrier("all step")
    sign.touch()
    while True:
        step(x=x)


def call_again(cluster: Cluster) -> str:
    try:
        cluster.barrier("after the loss")
    except ProcessLostError as error:
        return str(error)
    return "nobody is missed"


def check_named(processes: JoinedProcesses, victim: int, words: str) -> None:
    """Every other process says who is gone and in what it waited, and goes on saying so."""
    others = [i for i in range(len(processes.processes)) if i != victim]
    began = time.monotonic()
    for index, raised in zip(others, processes.answers(120, others), strict=True):
        assert isinstance(raised, Raised)
        assert raised.kind == "ProcessLostError", raised
        assert f"process {victim} (127.0.0.1:" in raised.message, raised.message
        assert words in raised.message
        assert "This process waited in all_reduce over mesh axes all, for reduce_sum, at " in raised.message
        assert "test_faults.py" in raised.message
        for other in others:
            assert other == index or f"process {other} (" not in raised.message
    assert time.monotonic() - began < 30
    for index in others:
        assert processes.stderr(index).count("\n") < 5, processes.stderr(index)


@pytest.mark.parametrize(
    ("number", "victim", "words"),
    [
        (signal.SIGKILL, 1, "has died or ended"),
        (signal.SIGSTOP, 0, "stopped, or cut off"),
    ],
    ids=["killed", "leader_stopped"],
)
def test_signals(
    fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path, number: signal.Signals, victim: int, words: str
) -> None:
    processes = fresh_processes(3)
    start_steps(processes, tmp_path)
    processes.send_signal(victim, number)
    check_named(processes, victim, words)


class Proxy:
    """Stands before a port, and passes on what comes, until it is told not to."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._forwards = True
        self._open: list[socket.socket] = [self._server]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop_forwarding(self) -> None:
        self._forwards = False

    def close(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                theirs, _ = self._server.accept()
                try:
                    ours = socket.create_connection(("127.0.0.1", self._target))
                except OSError:
                    theirs.close()
                    continue
                self._open += [theirs, ours]
                for pair in ((theirs, ours), (ours, theirs)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                while not self._forwards:
                    time.sleep(0.1)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def test_a_connection_that_is_cut(fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path) -> None:
    """Nothing is closed, and nothing comes through to process 1 any more."""
    ports = free_ports(3)
    proxy = Proxy(ports[1])
    try:
        told = [ports[0], proxy.port, ports[2]]
        processes = fresh_processes(3, ports=told, listen_ports={1: ports[1]})
        start_steps(processes, tmp_path)
        proxy.stop_forwarding()
        check_named(processes, 1, "stopped, or cut off")
    finally:
        proxy.close()


def test_who_ends_by_an_error_of_its_own_is_named_and_what_is_called_later_says_so(
    fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path
) -> None:
    processes = fresh_processes(2)
    start_steps(processes, tmp_path)
    processes.send_signal(1, signal.SIGTERM)
    check_named(processes, 1, "has died or ended")
    processes.start_in(0, call_again)
    (again,) = processes.answers(60, [0])
    assert "process 1 (127.0.0.1:" in again
    assert "Start all processes again" in again
