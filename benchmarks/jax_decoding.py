"""The benchmark `decoding`, hand-written in JAX: greedy, with a model of `lm_tiny`'s shape and the same cache.

The prompt is processed token by token. On several devices, arrays have shardings over batch, heads and vocabulary, and
the compiler places the collectives.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

D_MODEL, D_FF, HEADS, D_KV, LAYERS, VOCAB = 128, 512, 4, 32, 4, 384
"""The sizes of the model. The vocabulary of 258 tokens is padded, as in `lm_tiny`."""


def jax_decoder(rows: int, cols: int, prompts: np.ndarray, prompt_length: int) -> Any:
    """Makes a function that continues prompts, int32 [batch, length]. It returns tokens and log-likelihoods [batch]."""
    jax.config.update("jax_num_cpu_devices", rows * cols)
    mesh = Mesh(np.array(jax.devices("cpu")).reshape(rows, cols), ("rows", "cols"))

    def sharded(*axes: str | None) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*axes))

    shardings = {
        "embedding": sharded("cols"), "query": sharded(None, "cols"), "key": sharded(None, "cols"),
        "value": sharded(None, "cols"), "output": sharded("cols"), "wi": sharded(None, "cols"), "wo": sharded("cols"),
    }  # fmt: skip
    weights = {name: jax.device_put(w, shardings.get(name.split("/")[-1], sharded())) for name, w in _weights().items()}
    batch, length = prompts.shape
    cache = jnp.zeros([LAYERS, 2, batch, HEADS, length, D_KV])
    caches = jax.device_put(cache, sharded(None, None, "rows", "cols"))
    run = jax.jit(functools.partial(_decode, prompt_length=prompt_length))
    ids = jax.device_put(prompts, sharded("rows"))
    return lambda: run(weights, caches, ids)


def _weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"embedding": (VOCAB, D_MODEL)}
    for i in range(LAYERS):
        shapes |= {f"{i}/{name}": (D_MODEL, HEADS, D_KV) for name in ("query", "key", "value")}
        shapes |= {f"{i}/output": (HEADS, D_KV, D_MODEL), f"{i}/wi": (D_MODEL, D_FF), f"{i}/wo": (D_FF, D_MODEL)}
    return {name: rng.normal(0, 0.05, shape).astype(np.float32) for name, shape in shapes.items()}


def _norm(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6)


def _rotated(x: jax.Array, position: jax.Array) -> jax.Array:
    """Rotates [batch, heads, d_kv] by its position."""
    angles = position * 10000.0 ** (-jnp.arange(D_KV // 2) / (D_KV // 2))
    first, second = jnp.split(x, 2, -1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1)


def _decode(w: dict[str, jax.Array], cache: jax.Array, ids: jax.Array, prompt_length: int) -> tuple[jax.Array, ...]:
    length = ids.shape[1]

    def step(carried: tuple[Any, ...]) -> tuple[Any, ...]:
        position, ids, cache, total = carried
        x = w["embedding"][jax.lax.dynamic_index_in_dim(ids, position, 1, keepdims=False)]
        mask = jnp.where(jnp.arange(length) <= position, 0.0, -1e9)
        for i in range(LAYERS):
            h = _norm(x)
            q, k, v = (jnp.einsum("bm,mhk->bhk", h, w[f"{i}/{name}"]) for name in ("query", "key", "value"))
            q, k = _rotated(q, position), _rotated(k, position)
            own = jnp.stack([k, v])[None, :, :, :, None]
            cache = jax.lax.dynamic_update_slice(cache, own, (i, 0, 0, 0, position, 0))
            scores = jax.nn.softmax(jnp.einsum("bhk,bhlk->bhl", q * D_KV**-0.5, cache[i, 0]) + mask)
            x += jnp.einsum("bhk,hkm->bm", jnp.einsum("bhl,bhlk->bhk", scores, cache[i, 1]), w[f"{i}/output"])
            x += jnp.square(jax.nn.relu(_norm(x) @ w[f"{i}/wi"])) @ w[f"{i}/wo"]
        logits = _norm(x) @ w["embedding"].T
        logits = jnp.where(jnp.arange(VOCAB) < 258, logits, -jnp.inf)
        chosen = jnp.argmax(logits, -1).astype(jnp.int32)
        likelihood = jnp.max(logits, -1) - jax.nn.logsumexp(logits, -1)
        is_new = position + 1 >= prompt_length
        given = jax.lax.dynamic_index_in_dim(ids, position + 1, 1, keepdims=False)
        token = jnp.where(is_new, chosen, given)
        ids = jax.lax.dynamic_update_slice(ids, token[:, None], (0, position + 1))
        return position + 1, ids, cache, total + jnp.where(is_new, likelihood, 0.0)

    started = (jnp.int32(0), ids, cache, jnp.zeros(ids.shape[0]))
    _, ids, _, total = jax.lax.while_loop(lambda carried: carried[0] < length - 1, step, started)
    return ids, total
