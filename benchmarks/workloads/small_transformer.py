"""The small Transformer's training step, by layout and system."""

from __future__ import annotations

import functools

from benchmarks.measuring.side_by_side import Program
from benchmarks.transformer_step import DATA_AND_MODEL, by_hand, on_virtual_cpus
from benchmarks.workloads import two_processes
from benchmarks.workloads.in_jax import transformer as transformer_jax
from benchmarks.workloads.in_jax.transformer import RULES, jax_by_hand, jax_partitioned
from benchmarks.workloads.processes import OnTwoProcesses
from benchmarks.workloads.transformer_dtensor import dtensor_step
from benchmarks.workloads.workload import Workload

WORKLOAD = Workload(__name__, "A small Transformer", steps=10)

PROGRAMS: dict[str, Program] = {
    "by hand, 1 device": by_hand,
    "meshtf, 1 core": functools.partial(on_virtual_cpus, "all:1", ""),
    "meshtf, 2 cores, data": functools.partial(on_virtual_cpus, "all:2", "batch:all"),
    "meshtf, 8 cores, data": functools.partial(on_virtual_cpus, "all:8", "batch:all"),
    "meshtf, 4x2, data and model": functools.partial(on_virtual_cpus, "rows:4;cols:2", DATA_AND_MODEL),
    "meshtf, 2x4, data and model": functools.partial(on_virtual_cpus, "rows:2;cols:4", DATA_AND_MODEL),
    "meshtf, 8 cores in 2 processes, data": OnTwoProcesses(two_processes.joined),
    "JAX, 1 device": functools.partial(jax_by_hand, 1),
    "JAX, 2 devices, data": functools.partial(jax_by_hand, 2),
    "JAX, 8 devices, data": functools.partial(jax_by_hand, 8),
    "JAX, 8 devices in 2 processes, data": OnTwoProcesses(transformer_jax.joined),
    "JAX, 4x2, data and model": functools.partial(jax_partitioned, 4, 2),
    "JAX, 2x4, data and model": functools.partial(jax_partitioned, 2, 4),
    "DTensor, 8 devices, data": functools.partial(dtensor_step, 8, 1, {"batch": "rows"}),
    "DTensor, 4x2, data and model": functools.partial(dtensor_step, 4, 2, RULES),
    "DTensor, 2x4, data and model": functools.partial(dtensor_step, 2, 4, RULES),
}
