"""GPT-2's training step, hand-written in JAX: a padded vocabulary, and logits in the activations' dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.jax_sizes import JaxSizes, layer_shapes
from benchmarks.gpu.jax_transformer import Weights, cross_entropy, encoded, trained


def gpt2_in_jax(sizes: JaxSizes) -> Callable[[], jax.Array]:
    """The step, with random weights, and with tokens that are sent from the host each time. It returns the loss."""
    ids = np.random.default_rng(0).integers(2, sizes.vocab - 1, (sizes.batch, sizes.length), np.int32)
    embeddings = {"tokens": (sizes.vocab, sizes.d_model), "positions": (sizes.length, sizes.d_model)}
    return trained(functools.partial(_loss, sizes), embeddings | layer_shapes(sizes), ids)


def _loss(sizes: JaxSizes, weights: Weights, ids: jax.Array) -> jax.Array:
    dtype = jnp.dtype(sizes.dtype)
    given = jnp.pad(ids[:, :-1], ((0, 0), (1, 0)))
    x = weights["tokens"].astype(dtype)[given] + weights["positions"].astype(dtype)
    return cross_entropy(encoded(sizes, weights, x) @ weights["tokens"].astype(dtype).T, ids)
