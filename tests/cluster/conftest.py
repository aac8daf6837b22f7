"""Clusters of processes on this machine, each started once for many programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.cluster.joined_processes import JoinedProcesses


@pytest.fixture(scope="package")
def two_processes() -> Iterator[JoinedProcesses]:
    """Of eight virtual CPUs each, so that a mesh of both can be compared with one of either."""
    with JoinedProcesses(2, cpus=8, heartbeat_timeout_seconds=30) as processes:
        yield processes


@pytest.fixture
def fresh_processes() -> Iterator[Callable[..., JoinedProcesses]]:
    """Clusters that are to be broken."""
    made: list[JoinedProcesses] = []

    def make(number: int, **options: object) -> JoinedProcesses:
        made.append(JoinedProcesses(number, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for processes in made:
        processes.end()
