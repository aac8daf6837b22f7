"""The training step of a Transformer four times as wide, at length 1024, where products take most of the time."""

from __future__ import annotations

import functools
from collections.abc import Callable

from benchmarks.measuring.side_by_side import Step
from benchmarks.transformer_step import DATA_AND_MODEL, Sizes, by_hand, on_virtual_cpus
from benchmarks.workloads.in_jax.transformer import RULES, jax_by_hand, jax_partitioned
from benchmarks.workloads.transformer_dtensor import dtensor_step
from benchmarks.workloads.workload import Workload

SIZES = Sizes(layers=2, d_model=1024, heads=8, d_ff=4096, vocab=256, batch=2, length=1024)

WORKLOAD = Workload(__name__, "A Transformer four times as wide", steps=1, rounds=2, warm_up=0)

PROGRAMS: dict[str, Callable[[], Step]] = {
    "by hand, 1 device": functools.partial(by_hand, SIZES),
    "meshtf, 1 core": functools.partial(on_virtual_cpus, "all:1", "", SIZES),
    "meshtf, 2 cores, data": functools.partial(on_virtual_cpus, "all:2", "batch:all", SIZES),
    "meshtf, 2x4, data and model": functools.partial(on_virtual_cpus, "rows:2;cols:4", DATA_AND_MODEL, SIZES),
    "JAX, 1 device": functools.partial(jax_by_hand, 1, SIZES),
    "JAX, 2 devices, data": functools.partial(jax_by_hand, 2, SIZES),
    "JAX, 2x4, data and model": functools.partial(jax_partitioned, 2, 4, SIZES),
    "DTensor, 2x4, data and model": functools.partial(dtensor_step, 2, 4, RULES, SIZES),
}
