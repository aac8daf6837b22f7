"""Compares a step on a virtual TPU with virtual CPUs, and with hand-written JAX on the same runtime.

    python -m benchmarks.tpu.virtual_tpu

It runs the step of `transformer_step`, data parallel on eight cores: on virtual CPUs (TensorFlow's kernels and
collectives), on a virtual TPU (XLA, through PJRT), and hand-written in JAX as a `shard_map` with a sum over devices for
each gradient, where weights and moments are donated. The first call includes tracing and compilation.

The last lines are of a program with 100 variables and almost nothing to compute. They show the cost for the host to
start a step, here and in JAX with the variables donated. It is the CPU time of the thread until the step is started, as
the median over steps with a wait after each.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable

import jax
import numpy as np

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.measuring.side_by_side import Step, as_table, side_by_side
from benchmarks.transformer_step import SMALL, fed, meshtf_step
from benchmarks.workloads.in_jax.transformer import jax_by_hand

CORES = 8
VARIABLES = 100


def on_virtual_cpus() -> Step:
    mtf.virtual_cpus(CORES)
    return fed(meshtf_step(mtf.SpmdMeshImpl(f"all:{CORES}", "batch:all")))


def on_virtual_tpu() -> Step:
    mtf.virtual_tpu(CORES)
    return fed(meshtf_step(mtf.TpuMeshImpl(f"all:{CORES}", "batch:all")))


PROGRAMS: dict[str, Callable[[], Step]] = {
    "JAX by hand, 8 devices": functools.partial(jax_by_hand, CORES),
    "virtual TPU, 8 cores": on_virtual_tpu,
    "virtual CPUs, 8 cores": on_virtual_cpus,
}


def host_overhead(cores: int) -> float:
    """The host's milliseconds to start a step with 100 variables. Run it in a separate process."""
    mtf.virtual_tpu(cores)

    def count(mesh: mtf.Mesh) -> mtf.Tensor:
        variables = [mtf.get_variable(mesh, f"v{n}", [("x", 16)], initializer=mtf.zeros) for n in range(VARIABLES)]
        total = mtf.add_n([mtf.assign_add(v, mtf.ones_like(v)) for v in variables])
        assert isinstance(total, mtf.Tensor)
        return mtf.reduce_sum(total)

    step = mtf.function(count, mtf.TpuMeshImpl(f"all:{cores}", ""))
    return _time_to_start(step.start)


def host_overhead_by_hand(cores: int) -> float:
    """The host's milliseconds to start the same step in JAX."""
    jax.config.update("jax_num_cpu_devices", cores)
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("all",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())

    @functools.partial(jax.jit, donate_argnums=0, in_shardings=everywhere, out_shardings=everywhere)
    def count(variables: list[jax.Array]) -> tuple[list[jax.Array], jax.Array]:
        assigned = [v + 1 for v in variables]
        return assigned, functools.reduce(jax.numpy.add, assigned).sum()

    variables = [jax.device_put(np.zeros(16, np.float32), everywhere) for _ in range(VARIABLES)]

    def start() -> Callable[[], jax.Array]:
        nonlocal variables
        variables, total = count(variables)
        return total.block_until_ready

    return _time_to_start(start)


def _time_to_start(start: Callable[[], Callable[[], object]], steps: int = 300) -> float:
    start()()
    times = []
    for _ in range(steps):
        began = time.thread_time()
        wait = start()
        times.append(time.thread_time() - began)
        wait()
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of each program in a round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{machine()}; JAX {jax.__version__}; batch {SMALL.batch} x {SMALL.length}")
    print(as_table(side_by_side("benchmarks.tpu.virtual_tpu", list(PROGRAMS), arguments.steps, arguments.rounds)))
    spawning = multiprocessing.get_context("spawn")
    for cores in (1, CORES):
        found = []
        for measure in (host_overhead, host_overhead_by_hand):
            with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning) as pool:
                found.append(pool.submit(measure, cores).result())
        print(f"{VARIABLES} variables, {cores} cores: {found[0]:.2f} ms of the host a step, JAX {found[1]:.2f}")


if __name__ == "__main__":
    main()
