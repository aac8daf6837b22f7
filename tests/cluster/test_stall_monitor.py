"""A process that lives and stands still is named with its line, and one that fails by itself with its error."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import meshtf as mtf
import meshtf.cluster._stall_monitor as module
from meshtf.cluster._stall_monitor import Activity, OwnStand, Stand, described, site_of
from meshtf.cluster.cluster import Cluster
from meshtf.mesh_impl.spmd.collective_runtime import CollectiveRuntime
from tests.cluster.joined_processes import JoinedProcesses, Raised

ADDRESSES = ("a:1", "b:2", "c:3")


def test_who_does_not_wait_is_waited_for() -> None:
    waits, stuck = Stand("in a collective", 40, True), Stand("at x.py:3 in load", 41, False, "after step 7")
    assert described({1: waits, 2: stuck}, ADDRESSES) == (
        "process 2 (c:3), which reported no progress for 41 seconds at x.py:3 in load, after step 7"
    )
    assert described({1: waits, 2: None}, ADDRESSES) == "process 2 (c:3), which has not reported where it is"
    assert "process 1 (b:2)" in described({1: waits, 2: waits}, ADDRESSES)
    assert "process 2 (c:3)" in described({1: waits, 2: waits}, ADDRESSES)


def test_the_users_line_is_told_and_not_a_librarys() -> None:
    found = []
    json.loads('{"a": 1}', object_hook=lambda _: found.append(site_of(sys._getframe(1))))
    assert found[0].filename == __file__
    assert found[0].function.startswith("test_the_users_line")


def test_a_process_that_joined_in_a_thread_which_has_ended() -> None:
    with ThreadPoolExecutor(1) as pool:
        own = pool.submit(OwnStand, CollectiveRuntime(), Activity()).result()
    assert own.look().place.endswith("in test_a_process_that_joined_in_a_thread_which_has_ended")


def step(cluster: Cluster) -> Callable[[], object]:
    rows = mtf.Dimension("rows", 4)
    made = mtf.function(
        lambda x: mtf.reduce_sum(x), mtf.SpmdMeshImpl("all:4", "rows:all"), {"x": mtf.TensorSpec([rows])}, name="sum"
    )
    return lambda: made(x=np.ones([4], np.float32))


def stand_still_and_fail(cluster: Cluster) -> str:
    """Process 1 comes late, while process 0 is in a collective, and then to a meeting not at all, since it fails."""
    module._SAY_EVERY_SECONDS = 3.0
    run = step(cluster)
    run()
    cluster.reached("after step 1")
    if cluster.process_index == 1:
        load_an_example()
    run()
    if cluster.process_index == 1:
        cluster.tell_failure("ValueError: there is no such example")
        return "told"
    cluster.barrier("for which nobody comes")
    return "passed"


def load_an_example() -> None:
    end = time.monotonic() + 14
    while time.monotonic() < end:
        time.sleep(0.1)


@pytest.mark.timeout(400)
def test_who_stands_still_and_who_fails_is_named(fresh_processes: Callable[..., JoinedProcesses]) -> None:
    processes = fresh_processes(2, heartbeat_timeout_seconds=10)
    processes.start(stand_still_and_fail)
    lost, told = processes.answers(100)
    assert told == "told"
    assert isinstance(lost, Raised)
    assert lost.kind == "ProcessLostError"
    assert "process 1 (127.0.0.1:" in lost.message
    assert "has failed: ValueError: there is no such example. Start all processes again" in lost.message
    lines = processes.stderr(0).splitlines()
    assert lines, "nothing was said"
    for line in lines:
        assert 'in a collective of program "sum", after step 1. It waits for process 1 (127.0.0.1:' in line
        assert "test_stall_monitor.py:" in line
        assert "in load_an_example, after step 1" in line
    assert processes.stderr(1) == ""
