"""Runs processes on this machine that join a cluster, each in its own network namespace if one is given."""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

import meshtf as mtf
from meshtf_programs.addresses import Address
from meshtf_programs.launching.free_ports import free_ports

_CLONE_NEWNET = 0x40000000


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a process runs: its address, and the path of the network namespace that it enters, if any."""

    host: str = "127.0.0.1"
    network: str | None = None


@dataclasses.dataclass(frozen=True)
class Cost:
    """The cost of one call in one process: wall time and CPU time in seconds, and the pages that were faulted in."""

    wall: float
    cpu: float
    faults: float

    @classmethod
    def of(cls, call: Callable[[], object], times: int) -> Cost:
        """The mean cost of `times` calls."""
        begun, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        for _ in range(times):
            call()
        wall, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        return cls(wall / times, cpu / times, (after.ru_minflt - used.ru_minflt) / times)


class Processes:
    """Running processes. Each calls the functions that `run` sends, with its index and the given arguments."""

    def __init__(self, connections: Sequence[Connection]) -> None:
        self._connections = connections

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        for connection in self._connections:
            connection.send((function, arguments))
        return [connection.recv() for connection in self._connections]


@contextlib.contextmanager
def processes(places: Sequence[Place], cores: int, *, is_cluster: bool = True) -> Iterator[Processes]:
    """Starts processes at these places, and ends them. With `is_cluster` they join; otherwise they are independent."""
    context = multiprocessing.get_context("spawn")
    ports = free_ports(len(places))
    addresses = [str(Address(place.host, port)) for place, port in zip(places, ports, strict=True)]
    started, connections = [], []
    try:
        for index, place in enumerate(places):
            ours, theirs = context.Pipe()
            arguments = (theirs, index, cores, addresses if is_cluster else None, place.network)
            started.append(context.Process(target=_serve, args=arguments, daemon=True))
            started[-1].start()
            theirs.close()
            connections.append(ours)
        yield Processes(connections)
    finally:
        for process in started:
            process.kill()
            process.join()


def _serve(
    connection: Connection, index: int, cores: int, addresses: Sequence[str] | None, network: str | None
) -> None:
    if network is not None:
        enter(network)
    mtf.virtual_cpus(cores)
    if addresses is not None:
        mtf.initialize_cluster(addresses, index, heartbeat_timeout_seconds=60.0)
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            return
        connection.send(function(index, *arguments))


def enter(network: str) -> None:
    """Moves this process into the network namespace at a path. Call it before other threads start."""
    with open(network) as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), network)
