"""The step of `transformer_step` over two processes of four virtual CPUs, which the loopback joins."""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from multiprocessing.connection import Connection

import meshtf as mtf
from benchmarks.side_by_side import Step
from benchmarks.transformer_step import fed, meshtf_step
from meshtf_programs.launching.free_ports import free_ports


def on_two_processes() -> Step:
    """This process is the first. The second takes a step whenever this one does."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(2)]
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    other = spawning.Process(target=_follow, args=(theirs, addresses), daemon=True)
    other.start()
    theirs.close()
    step = _joined(0, addresses)

    def both() -> float:
        ours.send("step")
        loss = float(step())
        ours.recv()
        return loss

    return both


def _joined(index: int, addresses: Sequence[str]) -> Step:
    mtf.virtual_cpus(4)
    mtf.initialize_cluster(addresses, index, heartbeat_timeout_seconds=60.0)
    return fed(meshtf_step(mtf.SpmdMeshImpl("all:8", "batch:all")))


def _follow(commands: Connection, addresses: Sequence[str]) -> None:
    """In the second process, until the first has gone."""
    step = _joined(1, addresses)
    while True:
        try:
            commands.recv()
        except EOFError:
            return
        float(step())
        commands.send("done")
