"""The virtual TPU's step against virtual CPUs, and against JAX by hand on the same runtime.

    python -m benchmarks.virtual_tpu

The step of `transformer_step`, data parallel on eight cores: on virtual CPUs (TensorFlow's kernels and collectives), on
a virtual TPU (XLA, through PJRT), and written by hand in JAX as a `shard_map` with a sum over devices for each
gradient, weights and moments donated. Each program has a process; their rounds alternate, so that one runs at a time.
The first call has tracing and compilation in it.

The last lines are of a program with 100 variables and next to nothing to compute: what a step costs the host. It is the
time until `start` returns, its median over steps that are waited for one by one.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import multiprocessing
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import meshtf as mtf
from benchmarks.machine import machine
from benchmarks.transformer_step import (
    BATCH,
    BETA_1,
    BETA_2,
    D_KV,
    EPSILON,
    LAYERS,
    LEARNING_RATE,
    LENGTH,
    examples,
    fed,
    initial_weights,
    meshtf_step,
)

CORES = 8
VARIABLES = 100
Step = Callable[[], Any]


def on_virtual_cpus() -> Step:
    mtf.virtual_cpus(CORES)
    return fed(meshtf_step(mtf.SpmdMeshImpl(f"all:{CORES}", "batch:all")))


def on_virtual_tpu() -> Step:
    mtf.virtual_tpu(CORES)
    return fed(meshtf_step(mtf.TpuMeshImpl(f"all:{CORES}", "batch:all")))


def jax_by_hand() -> Step:
    """What one writes for eight devices: a step of each on its part of the batch, and a sum of gradients."""
    jax.config.update("jax_num_cpu_devices", CORES)
    mesh = Mesh(np.array(jax.devices("cpu")), ("all",))
    whole, split = PartitionSpec(), PartitionSpec("all")
    step = jax.jit(
        jax.shard_map(_jax_step, mesh=mesh, in_specs=(whole, split, split), out_specs=(whole, whole)),
        donate_argnums=0,
    )
    weights = initial_weights()
    zeros = {name: np.zeros_like(w) for name, w in weights.items()}
    started = {"weights": weights, "m": zeros, "v": dict(zeros), "powers": np.array([BETA_1, BETA_2], np.float32)}
    state = jax.device_put(started, NamedSharding(mesh, whole))
    inputs, targets = examples()

    def run() -> jax.Array:
        nonlocal state
        state, loss = step(state, inputs, targets)
        return loss

    return run


def _jax_step(state: dict[str, Any], inputs: jax.Array, targets: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    """Of one device: Adam, on the mean of the gradients of all."""
    loss, grads = jax.value_and_grad(_jax_loss)(jax.lax.pcast(state["weights"], "all", to="varying"), inputs, targets)
    loss, grads = jax.lax.pmean((loss, grads), "all")
    m = jax.tree.map(lambda m, g: BETA_1 * m + (1 - BETA_1) * g, state["m"], grads)
    v = jax.tree.map(lambda v, g: BETA_2 * v + (1 - BETA_2) * g * g, state["v"], grads)
    power_1, power_2 = state["powers"]
    rate = LEARNING_RATE * jnp.sqrt(1 - power_2) / (1 - power_1)
    weights = jax.tree.map(lambda w, m, v: w - rate * m / (jnp.sqrt(v) + EPSILON), state["weights"], m, v)
    powers = state["powers"] * jnp.array([BETA_1, BETA_2], jnp.float32)
    return {"weights": weights, "m": m, "v": v, "powers": powers}, loss


def _jax_loss(w: dict[str, jax.Array], inputs: jax.Array, targets: jax.Array) -> jax.Array:
    mask = jnp.where(np.tril(np.ones([LENGTH, LENGTH])) > 0, 0.0, -1e9)

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale

    x = w["embedding"][inputs] + w["positions"]
    for i in range(LAYERS):
        own = {n.split("/")[1]: v for n, v in w.items() if n.startswith(f"layer_{i}/")}
        h = norm(x, own["attention_scale"])
        q, k, v = (jnp.einsum("blm,mhk->bhlk", h, own[name]) for name in ("query", "key", "value"))
        scores = jax.nn.softmax(jnp.einsum("bhlk,bhmk->bhlm", q * D_KV**-0.5, k) + mask)
        x += jnp.einsum("bhlk,hkm->blm", jnp.einsum("bhlm,bhmk->bhlk", scores, v), own["output"])
        x += jax.nn.relu(norm(x, own["ffn_scale"]) @ own["wi"]) @ own["wo"]
    logits = norm(x, w["final_scale"]) @ w["logits"]
    picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "JAX by hand, 8 devices": jax_by_hand,
    "virtual TPU, 8 cores": on_virtual_tpu,
    "virtual CPUs, 8 cores": on_virtual_cpus,
}


@functools.cache
def started(name: str) -> tuple[Step, float]:
    """In a process of its own: the step, and the seconds until its first call was over."""
    began = time.perf_counter()
    step = PROGRAMS[name]()
    float(step())
    return step, time.perf_counter() - began


def timed(name: str, steps: int) -> tuple[float, list[float], float]:
    """In a process of its own: the first call (s), these steps (s each), and the last loss."""
    step, first = started(name)
    times, loss = [], float("nan")
    for _ in range(steps):
        began = time.perf_counter()
        loss = float(step())
        times.append(time.perf_counter() - began)
    return first, times, loss


def host_overhead(cores: int, steps: int) -> float:
    """In a process of its own: milliseconds until `start` of a step with 100 variables returns."""
    mtf.virtual_tpu(cores)

    def count(mesh: mtf.Mesh) -> mtf.Tensor:
        variables = [mtf.get_variable(mesh, f"v{n}", [("x", 16)], initializer=mtf.zeros) for n in range(VARIABLES)]
        return mtf.reduce_sum(mtf.add_n([mtf.assign_add(v, mtf.ones_like(v)) for v in variables]))

    step = mtf.function(count, mtf.TpuMeshImpl(f"all:{cores}", ""))
    step()
    times = []
    for _ in range(steps):
        began = time.perf_counter()
        results = step.start()
        times.append(time.perf_counter() - began)
        results()
    return statistics.median(times) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of each program in a round")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    spawning = multiprocessing.get_context("spawn")
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    first, losses = {}, {}
    with contextlib.ExitStack() as stack:
        pools = {
            n: stack.enter_context(concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning)) for n in PROGRAMS
        }
        for _ in range(arguments.rounds):
            for name, pool in pools.items():
                first[name], taken, losses[name] = pool.submit(timed, name, arguments.steps).result()
                times[name].extend(taken)
    medians = {name: statistics.median(t) * 1e3 for name, t in times.items()}
    print(f"{machine()}; JAX {jax.__version__}; batch {BATCH} x {LENGTH}")
    print(f"{'program':26} {'first call s':>12} {'step ms':>9} {'of JAX':>7} {'loss':>9}")
    for name, median in medians.items():
        ratio = median / next(iter(medians.values()))
        print(f"{name:26} {first[name]:12.1f} {median:9.1f} {ratio:7.2f} {losses[name]:9.5f}")
    for cores in (1, CORES):
        with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawning) as pool:
            overhead = pool.submit(host_overhead, cores, 300).result()
        print(f"{VARIABLES} variables, {cores} cores: {overhead:.2f} ms of the host in a step")


if __name__ == "__main__":
    main()
