"""The training step of `transformer_step`, by hand in JAX: a `shard_map` with a sum over devices for each gradient."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.side_by_side import Step
from benchmarks.transformer_step import (
    BETA_1,
    BETA_2,
    D_KV,
    EPSILON,
    LAYERS,
    LEARNING_RATE,
    LENGTH,
    examples,
    initial_weights,
)


def jax_by_hand(cores: int) -> Step:
    """What one writes for several devices: a step of each on its part of the batch, and a sum of gradients."""
    jax.config.update("jax_num_cpu_devices", cores)
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
