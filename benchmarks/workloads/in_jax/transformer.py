"""The training step of `transformer_step` in JAX: a hand-written `shard_map`, or shardings that XLA partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from multiprocessing.util import Finalize
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.measuring.side_by_side import Step
from benchmarks.transformer_step import LEARNING_RATE, SMALL, Sizes, examples, initial_weights
from benchmarks.workloads.in_jax import adam as adam_jax
from benchmarks.workloads.processes import LAST

RULES = {"batch": "rows", "heads": "cols", "d_ff": "cols", "vocab": "cols"}


def jax_by_hand(cores: int, sizes: Sizes = SMALL) -> Step:
    """The usual data-parallel program: each device computes on its part of the batch, and gradients are summed."""
    return _data_parallel(jax_mesh(all=cores), sizes)


def joined(index: int, addresses: Sequence[str]) -> Step:
    """The data-parallel program in one of several processes with four devices each. Gloo does the sums."""
    jax.config.update("jax_num_cpu_devices", 4)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        addresses[0], len(addresses), index, heartbeat_timeout_seconds=600, shutdown_timeout_seconds=20
    )
    Finalize(None, jax.distributed.shutdown, exitpriority=LAST - 1)  # it waits for the other process's shutdown
    return _data_parallel(Mesh(np.array(jax.devices("cpu")), "all"), SMALL)


def _data_parallel(mesh: Mesh, sizes: Sizes) -> Step:
    whole, split = PartitionSpec(), PartitionSpec("all")

    def step(state: dict[str, Any], inputs: jax.Array, targets: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        varying = jax.lax.pcast(state["weights"], "all", to="varying")
        loss, grads = jax.value_and_grad(_loss(sizes))(varying, inputs, targets)
        loss, grads = jax.lax.pmean((loss, grads), "all")
        return adam_jax.updated(state, grads, LEARNING_RATE, {}), loss

    def placed(value: np.ndarray, spec: PartitionSpec) -> jax.Array:
        return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), value.__getitem__)

    state = jax.tree.map(lambda value: placed(value, whole), adam_jax.started(initial_weights(sizes)))
    batch = [placed(value, split) for value in examples(sizes)]
    mapped = jax.shard_map(step, mesh=mesh, in_specs=(whole, split, split), out_specs=(whole, whole))
    return donating(jax.jit(mapped, donate_argnums=0), state, *batch)


def jax_partitioned(rows: int, cols: int, sizes: Sizes = SMALL) -> Step:
    """The usual program for data and model parallelism: it shards weights and batch, and XLA places the collectives."""
    mesh = jax_mesh(rows=rows, cols=cols)
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("rows"))
    of_weights = {
        name: NamedSharding(mesh, PartitionSpec(*(RULES.get(dim) for dim in dims)))
        for name, dims in sizes.names.items()
    }
    shardings = {"weights": of_weights, "m": of_weights, "v": of_weights, "powers": whole}

    def step(state: dict[str, Any], inputs: jax.Array, targets: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        loss, grads = jax.value_and_grad(_loss(sizes))(state["weights"], inputs, targets)
        return adam_jax.updated(state, grads, LEARNING_RATE, {}), loss

    jitted = jax.jit(step, in_shardings=(shardings, split, split), out_shardings=(shardings, whole), donate_argnums=0)
    state = jax.device_put(adam_jax.started(initial_weights(sizes)), shardings)
    return donating(jitted, state, *examples(sizes))


def jax_mesh(**axes: int) -> Mesh:
    """A mesh with as many devices as the axes need. It sets up virtual CPUs, unless JAX uses another platform."""
    count, platform = int(np.prod(list(axes.values()))), (jax.config.jax_platforms or "cpu").split(",")[0]
    if platform == "cpu":
        jax.config.update("jax_num_cpu_devices", count)
    return Mesh(np.array(jax.devices(platform)[:count]).reshape(list(axes.values())), tuple(axes))


def donating(step: Callable[..., tuple[Any, jax.Array]], state: Any, *batch: np.ndarray | jax.Array) -> Step:
    """Makes a step that keeps its state and returns the loss."""

    def run() -> jax.Array:
        nonlocal state
        state, loss = step(state, *batch)
        return loss

    return run


def _loss(sizes: Sizes) -> Callable[[Mapping[str, jax.Array], jax.Array, jax.Array], jax.Array]:
    mask = np.where(np.tril(np.ones([sizes.length, sizes.length])) > 0, 0.0, -1e9).astype(np.float32)

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale

    def loss(w: Mapping[str, jax.Array], inputs: jax.Array, targets: jax.Array) -> jax.Array:
        x = w["embedding"][inputs] + w["positions"]
        for i in range(sizes.layers):
            own = {n.split("/")[1]: v for n, v in w.items() if n.startswith(f"layer_{i}/")}
            h = norm(x, own["attention_scale"])
            q, k, v = (jnp.einsum("blm,mhk->bhlk", h, own[name]) for name in ("query", "key", "value"))
            scores = jax.nn.softmax(jnp.einsum("bhlk,bhmk->bhlm", q * sizes.d_kv**-0.5, k) + mask)
            x += jnp.einsum("bhlk,hkm->blm", jnp.einsum("bhlm,bhmk->bhlk", scores, v), own["output"])
            x += jax.nn.relu(norm(x, own["ffn_scale"]) @ own["wi"]) @ own["wo"]
        logits = norm(x, w["final_scale"]) @ w["logits"]
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return loss
