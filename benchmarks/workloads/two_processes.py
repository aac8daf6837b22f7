"""The step of `transformer_step` on two processes of four virtual CPUs each, joined over the loopback."""

from __future__ import annotations

from collections.abc import Sequence

import meshtf as mtf
from benchmarks.measuring.side_by_side import Step
from benchmarks.transformer_step import fed, meshtf_step


def joined(index: int, addresses: Sequence[str]) -> Step:
    mtf.virtual_cpus(4)
    mtf.initialize_cluster(addresses, index, heartbeat_timeout_seconds=60.0)
    return fed(meshtf_step(mtf.SpmdMeshImpl("all:8", "batch:all")))
