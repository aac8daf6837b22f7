"""A process that dies or is stopped after all have met, before TensorFlow, or meshtf, knows of it: the others end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

import meshtf as mtf
import meshtf.cluster._tensorflow_server as server
from meshtf.errors import ProcessLostError
from tests.fresh_process import forking_context
from tests.own_ports import own_ports

KILLED_BEFORE, STOPPED_AFTER = ("start_server", signal.SIGKILL), ("_check_one_start", signal.SIGSTOP)
"""What happens to a process in place of a step of `initialize_cluster`: TensorFlow's start, or the first text."""


def join(index: int, victim: int, fault: tuple[str, signal.Signals], ports: list[int], folder: Path) -> None:
    os.dup2(os.open(folder / str(index), os.O_WRONLY | os.O_CREAT), 2)
    step, number = fault
    if fault == KILLED_BEFORE:
        server._REGISTER_SECONDS, server._LONGEST_START_SECONDS = 6, 12
    if index == victim:
        setattr(sys.modules["meshtf.cluster.initialize_cluster"], step, lambda *_: os.kill(os.getpid(), number))
    try:
        mtf.initialize_cluster([f"127.0.0.1:{port}" for port in ports], index)
    except ProcessLostError as error:
        print(error, file=sys.stderr)
        sys.exit(5)


def started(victim: int, fault: tuple[str, signal.Signals], folder: Path) -> list[ForkServerProcess]:
    folder.mkdir()
    ports = own_ports(2)
    processes = [forking_context().Process(target=join, args=(i, victim, fault, ports, folder)) for i in range(2)]
    for process in processes:
        process.start()
    return processes


@pytest.fixture
def stopped(tmp_path: Path) -> Iterator[list[ForkServerProcess]]:
    """Two processes, of which the first has been stopped: the end of all tests would wait for it."""
    processes = started(0, STOPPED_AFTER, tmp_path / "stopped")
    yield processes
    processes[0].kill()


@pytest.mark.timeout(300)
def test_a_death_after_all_have_met_ends_the_others(tmp_path: Path, stopped: list[ForkServerProcess]) -> None:
    cases = [(victim, started(victim, KILLED_BEFORE, tmp_path / str(victim))) for victim in (0, 1)]
    for victim, processes in cases:
        for process in processes:
            process.join(120)
        assert processes[victim].exitcode == -signal.SIGKILL
        said = (tmp_path / str(victim) / str(1 - victim)).read_text()
        if victim == 0:
            assert processes[1].exitcode == 5
            assert "process 0 (127.0.0.1:" in said
            assert "has not answered since all processes met" in said
        else:
            assert processes[0].exitcode == -signal.SIGKILL
            assert "process 0 is killed: TensorFlow's server has not started" in said
    stopped[1].join(120)
    assert stopped[1].exitcode == 5
    said = (tmp_path / "stopped" / "1").read_text()
    assert "process 0 (127.0.0.1:" in said
    assert "stopped, or cut off" in said
