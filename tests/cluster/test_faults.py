"""A process that dies, is stopped or is cut off is named by the others, with what they waited in."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import meshtf as mtf
from meshtf.cluster.cluster import Cluster
from meshtf.errors import ProcessLostError
from tests.cluster.joined_processes import JoinedProcesses, Raised
from tests.cluster.proxy import Proxy
from tests.own_ports import own_ports

pytestmark = pytest.mark.timeout(400)
SILENT = "stopped, or cut off"


def start_steps(processes: JoinedProcesses, folder: Path, absent: int | None = None) -> None:
    """`absent`: who comes to the first step alone, so that the others are in the second one when it ends. Of an end
    between two steps they would learn where they wait in nothing."""
    folder.mkdir(exist_ok=True)
    processes.start(step_for_ever, folder / "stepping", absent)
    end = time.monotonic() + 120
    while not (folder / "stepping").exists():
        assert time.monotonic() < end
        time.sleep(0.1)


def step_for_ever(cluster: Cluster, sign: Path, absent: int | None) -> None:
    rows = mtf.Dimension("rows", 4 * cluster.num_processes)
    mesh_impl = mtf.SpmdMeshImpl(f"all:{2 * cluster.num_processes}", "rows:all")
    step = mtf.function(lambda x: mtf.reduce_sum(x), mesh_impl, {"x": mtf.TensorSpec([rows])}, name="endless")
    x = np.ones([rows.size], np.float32)
    step(x=x)
    cluster.barrier("all step")
    sign.touch()
    while cluster.process_index == absent:
        time.sleep(1)
    while True:
        step(x=x)
        time.sleep(0.01)  # of a processor; all wait in a step long before they miss anybody


def call_again(cluster: Cluster) -> str:
    try:
        cluster.barrier("after the loss")
    except ProcessLostError as error:
        return str(error)
    return "nobody is missed"


def check_named(processes: JoinedProcesses, victim: int, words: str) -> None:
    """Every other process says who is gone and in what it waited, and goes on saying so."""
    others = [i for i in range(len(processes.processes)) if i != victim]
    for index, raised in zip(others, processes.answers(120, others), strict=True):
        assert isinstance(raised, Raised)
        assert raised.kind == "ProcessLostError", raised
        assert f"process {victim} (127.0.0.1:" in raised.message, raised.message
        assert words in raised.message
        assert "This process waited in all_reduce over mesh axes all, for reduce_sum, at " in raised.message
        assert "test_faults.py" in raised.message
        assert "Start all processes again; training resumes from its last checkpoint" in raised.message
        for other in others:
            assert other == index or f"process {other} (" not in raised.message
    for index in others:
        assert processes.stderr(index).count("\n") < 5, processes.stderr(index)


@pytest.mark.parametrize(
    ("number", "victim", "words"),
    [
        pytest.param(signal.SIGKILL, 1, "has died or ended", marks=pytest.mark.long),
        (signal.SIGSTOP, 0, SILENT),
    ],
    ids=["killed", "leader_stopped"],
)
def test_signals(
    fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path, number: signal.Signals, victim: int, words: str
) -> None:
    processes = fresh_processes(3)
    start_steps(processes, tmp_path, absent=victim if number == signal.SIGKILL else None)
    time.sleep(1)
    processes.send_signal(victim, number)
    check_named(processes, victim, words)


def come_where_the_leader_has_stopped(cluster: Cluster) -> None:
    if cluster.is_leader:
        cluster.put("stops", "")
        os.kill(os.getpid(), signal.SIGSTOP)
    cluster.get("stops")
    time.sleep(0.5)
    cluster.barrier("to which nobody else comes")


def test_a_leader_that_is_stopped_before_others_tell_it_something(
    fresh_processes: Callable[..., JoinedProcesses],
) -> None:
    processes = fresh_processes(2)
    processes.start(come_where_the_leader_has_stopped)
    (raised,) = processes.answers(60, [1])
    assert raised.kind == "ProcessLostError", raised
    assert "process 0 (127.0.0.1:" in raised.message
    assert "stopped, or cut off" in raised.message


@pytest.mark.long
def test_a_connection_that_is_cut(fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path) -> None:
    """Nothing is closed, and nothing comes through to process 1 any more."""
    ports = own_ports(3)
    proxy = Proxy(ports[1])
    try:
        told = [ports[0], proxy.port, ports[2]]
        processes = fresh_processes(3, ports=told, listen_ports={1: ports[1]})
        start_steps(processes, tmp_path)
        proxy.stop_forwarding()
        check_named(processes, 1, SILENT)
    finally:
        proxy.close()


def test_who_ends_by_an_error_of_its_own_is_named_and_what_is_called_later_says_so(
    fresh_processes: Callable[..., JoinedProcesses], tmp_path: Path
) -> None:
    processes = fresh_processes(2)
    start_steps(processes, tmp_path, absent=1)
    time.sleep(1)
    processes.send_signal(1, signal.SIGTERM)
    check_named(processes, 1, "has died or ended")
    processes.start_in(0, call_again)
    (again,) = processes.answers(60, [0])
    assert "process 1 (127.0.0.1:" in again
    assert "Start all processes again" in again


DRAWN = ("killed", "stopped", "ended", "cut")


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_faults_drawn_at_random(seed: int, tmp_path: Path) -> None:
    """Forty, each of a cluster of its own: which fault, of which process of two or three, and when."""
    for number in range(40):
        draw = random.Random(f"{seed}/{number}")
        kind, size = draw.choice(DRAWN), draw.randint(2, 3)
        victim = draw.randrange(size)
        ports = own_ports(size)
        proxy = Proxy(ports[victim])
        told = [proxy.port if i == victim else port for i, port in enumerate(ports)]
        print(f"{number}: {kind}, process {victim} of {size}")
        try:
            with JoinedProcesses(size, ports=told, listen_ports={victim: ports[victim]}) as processes:
                start_steps(processes, tmp_path / str(number), victim if kind in ("killed", "ended") else None)
                time.sleep(draw.uniform(0.5, 1.5))
                if kind == "cut":
                    proxy.stop_forwarding()
                else:
                    signals = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP, "ended": signal.SIGTERM}
                    processes.send_signal(victim, signals[kind])
                check_named(processes, victim, SILENT if kind in ("stopped", "cut") else "process ")
        finally:
            proxy.close()
