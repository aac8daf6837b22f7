"""A Transformer's training step, hand-written in JAX in the fastest known form on one H200.

It has unrolled layers, AdamW, and on a GPU cuDNN's attention for activations of two bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.jax_sizes import JaxSizes, first_weights

_BETA_1, _BETA_2, _RATE, _EPSILON = 0.9, 0.98, 1e-4, 1e-8

Weights = dict[str, jax.Array]
"""Weights by name. A name that begins with `layer_` has the weights of all layers, stacked over the first dimension."""

State = tuple[Weights, Weights, Weights, jax.Array]
"""Weights, their first and second moments, and the number of steps."""

Loss = Callable[..., jax.Array]
"""A function of weights and of the arrays of a batch."""


def trained(loss: Loss, shapes: dict[str, tuple[int, ...]], *batch: jax.Array | np.ndarray) -> Callable[[], jax.Array]:
    """The step, with random weights of these shapes. It returns the loss of the batch."""
    weights = {name: jnp.asarray(value) for name, value in first_weights(shapes).items()}
    state = (weights, *({name: jnp.zeros_like(w) for name, w in weights.items()} for _ in range(2)), jnp.float32(0))
    step = jax.jit(functools.partial(_step, loss), donate_argnums=0)

    def run() -> jax.Array:
        nonlocal state
        state, value = step(state, *batch)
        return value

    return run


def encoded(sizes: JaxSizes, weights: Weights, x: jax.Array) -> jax.Array:
    """Applies all layers and the norm after them to [batch, length, d_model]."""
    for number in range(sizes.layers):
        x = _layer(sizes, x, {name: w[number] for name, w in weights.items() if name.startswith("layer_")})
    return _normalized(x, weights["norm"])


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean cross-entropy. Logits keep their dtype, and are summed in float32."""
    largest = jax.lax.stop_gradient(logits.max(-1))
    sums = jnp.sum(jnp.exp((logits - largest[..., None]).astype(jnp.float32)), -1)
    picked = jnp.take_along_axis(logits, labels[..., None], -1)[..., 0]
    return jnp.mean(jnp.log(sums) + largest.astype(jnp.float32) - picked.astype(jnp.float32))


def _step(loss: Loss, state: State, *batch: jax.Array) -> tuple[State, jax.Array]:
    weights, first, second, steps = state
    value, gradients = jax.value_and_grad(loss)(weights, *batch)
    steps += 1
    first = {n: _BETA_1 * m + (1 - _BETA_1) * gradients[n] for n, m in first.items()}
    second = {n: _BETA_2 * v + (1 - _BETA_2) * jnp.square(gradients[n]) for n, v in second.items()}
    scales = 1 - _BETA_1**steps, 1 - _BETA_2**steps
    moved = {n: first[n] / scales[0] / (jnp.sqrt(second[n] / scales[1]) + _EPSILON) for n in weights}
    return ({n: w - _RATE * (moved[n] + 0.01 * w) for n, w in weights.items()}, first, second, steps), value


def _layer(sizes: JaxSizes, x: jax.Array, layer: Weights) -> jax.Array:
    own = {name.removeprefix("layer_"): w.astype(x.dtype) for name, w in layer.items()}
    h = _normalized(x, layer["layer_norm_1"])
    q, k, v = jnp.einsum("bld,dthk->tblhk", h, own["qkv"]) + own["qkv_bias"][:, None, None]
    x += jnp.einsum("blhk,hkd->bld", _attended(sizes, q, k, v), own["out"]) + own["out_bias"]
    hidden = jax.nn.gelu(_normalized(x, layer["layer_norm_2"]) @ own["wi"] + own["wi_bias"])
    return x + hidden @ own["wo"] + own["wo_bias"]


def _attended(sizes: JaxSizes, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    if q.dtype.itemsize == 2 and jax.default_backend() == "gpu":
        return _attended_by_cudnn(sizes, q, k, v)
    scores = jnp.einsum("blhk,bmhk->bhlm", q, k).astype(jnp.float32) * q.shape[-1] ** -0.5
    if sizes.is_causal:
        scores = jnp.where(jnp.tril(jnp.ones((sizes.length, sizes.length), bool)), scores, -1e9)
    return jnp.einsum("bhlm,bmhk->blhk", jax.nn.softmax(scores, -1).astype(q.dtype), v)


def _attended_by_cudnn(sizes: JaxSizes, q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention by cuDNN's kernels. JAX uses them only for even lengths, so an odd length is padded and masked."""
    attend = functools.partial(jax.nn.dot_product_attention, is_causal=sizes.is_causal, implementation="cudnn")
    batch, length = q.shape[:2]
    if length % 2 == 0:
        return attend(q, k, v)
    lengths = jnp.full([batch], length, jnp.int32)
    padded = (jnp.pad(x, ((0, 0), (0, 1), (0, 0), (0, 0))) for x in (q, k, v))
    return attend(*padded, query_seq_lengths=lengths, key_value_seq_lengths=lengths)[:, :length]


def _normalized(x: jax.Array, scale: jax.Array) -> jax.Array:
    whole = x.astype(jnp.float32)
    less = whole - whole.mean(-1, keepdims=True)
    return (less * jax.lax.rsqrt(jnp.square(less).mean(-1, keepdims=True) + 1e-5) * scale).astype(x.dtype)
