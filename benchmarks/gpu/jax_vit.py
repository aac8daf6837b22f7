"""A Vision Transformer's training step, hand-written in JAX: a class token, and images sent from the host."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu.jax_sizes import CHANNELS, JaxSizes, vit_shapes
from benchmarks.gpu.jax_transformer import Weights, cross_entropy, encoded, trained


def vit_in_jax(sizes: JaxSizes, patch: int, images: np.ndarray, labels: np.ndarray) -> Callable[[], jax.Array]:
    """The step, with random weights. It returns the loss.

    Args:
      sizes: the sizes. `vocab` is the number of classes, and `length` counts patches and the class token.
      patch: the pixels on each side of a patch.
      images: [batch, side, side, 3], in the dtype of activations.
      labels: int32 [batch].
    """
    return trained(functools.partial(_loss, sizes, patch), vit_shapes(sizes, patch), images, labels)


def _loss(sizes: JaxSizes, patch: int, weights: Weights, images: jax.Array, labels: jax.Array) -> jax.Array:
    dtype, (batch, side) = images.dtype, images.shape[:2]
    across = side // patch
    cut = images.reshape(batch, across, patch, across, patch, CHANNELS).swapaxes(2, 3).reshape(batch, across**2, -1)
    x = cut @ weights["patches"].astype(dtype) + weights["patches_bias"].astype(dtype)
    token = jnp.broadcast_to(weights["class_token"].astype(dtype), (batch, 1, sizes.d_model))
    x = jnp.concatenate([token, x], 1) + weights["positions"].astype(dtype)
    first = encoded(sizes, weights, x)[:, 0]
    return cross_entropy(first @ weights["logits"].astype(dtype) + weights["logits_bias"].astype(dtype), labels)
