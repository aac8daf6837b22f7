"""Decoding, hand-written in JAX: the prompts in one pass, then one compiled loop with the same cache."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.decoding import BATCH, NEW, PROMPT, prompts
from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads.decoding_weights import D_KV, EMBEDDING, FINAL, HEADS, LAYERS, NAMES, weights
from benchmarks.workloads.in_jax.transformer import RULES, jax_mesh

LENGTH = PROMPT + NEW
Weights = Mapping[str, jax.Array]
Cache = list[tuple[jax.Array, jax.Array]]  # of each layer: k and v, [batch, heads, LENGTH, d_kv]


def jax_by_hand(rows: int, cols: int) -> Step:
    """The step, hand-written in JAX. It returns the mean log-likelihood of the added tokens."""
    mesh = jax_mesh(rows=rows, cols=cols)
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("rows"))
    of_weights = {name: NamedSharding(mesh, PartitionSpec(*map(RULES.get, dims))) for name, dims in NAMES.items()}
    generate = jax.jit(_generated, in_shardings=(of_weights, split), out_shardings=(split, whole))
    placed, ids = jax.device_put(weights(), of_weights), prompts()["targets"][:, :PROMPT]
    return lambda: generate(placed, ids)[1]


def _generated(w: Weights, given: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Prompts [batch, PROMPT] -> ids [batch, LENGTH], and the mean over prompts of the log-likelihood."""
    # The logits of a token depend on the token before it. Before the first token is 0.
    before = jnp.pad(given, ((0, 0), (1, 0)))[:, :-1]
    empty = jnp.zeros([BATCH, HEADS, LENGTH, D_KV])
    _, cache = _logits(w, before, 0, [(empty, empty)] * LAYERS)

    def step(
        carried: tuple[jax.Array, jax.Array, jax.Array, Cache], position: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array, jax.Array, Cache], None]:
        token, ids, likelihood, cache = carried
        logits, cache = _logits(w, token[:, None], position, cache)
        token = jnp.argmax(logits, -1).astype(jnp.int32)
        likelihood += jnp.max(logits, -1) - jax.nn.logsumexp(logits, -1)
        return (token, ids.at[:, position].set(token), likelihood, cache), None

    ids = jnp.pad(given, ((0, 0), (0, NEW)))
    started = (given[:, -1], ids, jnp.zeros([BATCH]), cache)
    (_, ids, likelihood, _), _ = jax.lax.scan(step, started, jnp.arange(PROMPT, LENGTH))
    return ids, jnp.mean(likelihood)


def _logits(w: Weights, tokens: jax.Array, start: int | jax.Array, cache: Cache) -> tuple[jax.Array, Cache]:
    """The logits [batch, vocab] after the last of the tokens [batch, some], which begin at `start`; the new cache."""
    positions = start + jnp.arange(tokens.shape[1])
    hidden = jnp.where(jnp.arange(LENGTH) <= positions[:, None], 0.0, -1e9)  # [some, LENGTH]
    x, new = w[EMBEDDING][tokens], []
    for layer, (keys, values) in enumerate(cache):
        own = {n.removeprefix("decoder/layer/"): v[layer] for n, v in w.items() if n.startswith("decoder/layer/")}
        h = _norm(x, own["self_attention/norm/scale"])
        q, k, v = (jnp.einsum("blm,mhk->bhlk", h, own[f"self_attention/{name}"]) for name in "qkv")
        keys = jax.lax.dynamic_update_slice_in_dim(keys, _rotary(k, positions), start, 2)
        values = jax.lax.dynamic_update_slice_in_dim(values, v, start, 2)
        new.append((keys, values))
        scores = jnp.einsum("bhlk,bhmk->bhlm", _rotary(q, positions) * D_KV**-0.5, keys) + hidden
        mixed = jnp.einsum("bhlm,bhmk->bhlk", jax.nn.softmax(scores), values)
        x += jnp.einsum("bhlk,hkm->blm", mixed, own["self_attention/o"])
        h = _norm(x, own["feed_forward/norm/scale"])
        x += jnp.square(jax.nn.relu(h @ own["feed_forward/wi/kernel"])) @ own["feed_forward/wo/kernel"]
    return _norm(x[:, -1], w[FINAL]) @ w[EMBEDDING].T, new


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + 1e-6) * scale


def _rotary(x: jax.Array, positions: jax.Array) -> jax.Array:
    """Rotates [batch, heads, some, d_kv] by position, with element i paired with i + half (Su et al. 2021)."""
    half = D_KV // 2
    angles = positions[:, None] * 10000.0 ** (-np.arange(half) / half)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], -1).astype(x.dtype)
