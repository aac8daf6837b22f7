"""ResNet-50's training step in JAX: one `jit`, with the batch and the images' height split by shardings."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads import resnet_sizes as sizes
from benchmarks.workloads.in_jax.transformer import donating, jax_mesh

Arrays = dict[str, jax.Array]


def in_jax(rows: int, cols: int) -> Step:
    """The step in JAX. The batch is split over `rows`, the height of the images over `cols`."""
    mesh = jax_mesh(rows=rows, cols=cols)
    whole, labels = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("rows"))
    images = NamedSharding(mesh, PartitionSpec("rows", "cols"))
    step = jax.jit(_step, in_shardings=(whole, images, labels), out_shardings=whole, donate_argnums=0)
    weights = sizes.initial_weights()
    state = {
        "weights": weights,
        "moments": {name: np.zeros_like(w) for name, w in weights.items()},
        "means": {each.name: np.zeros([each.outs], np.float32) for each in sizes.convolutions()},
        "variances": {each.name: np.ones([each.outs], np.float32) for each in sizes.convolutions()},
    }
    return donating(step, jax.device_put(state, whole), *sizes.examples())


def _step(state: dict[str, Arrays], images: jax.Array, labels: jax.Array) -> tuple[dict[str, Any], jax.Array]:
    (loss, (means, variances)), grads = jax.value_and_grad(_loss, has_aux=True)(state["weights"], images, labels)
    moments = jax.tree.map(lambda moment, grad: sizes.MOMENTUM * moment + grad, state["moments"], grads)

    def moved(old: jax.Array, new: jax.Array) -> jax.Array:
        return old + (new - old) * (1 - sizes.BATCH_NORM_MOMENTUM)

    return {
        "weights": jax.tree.map(lambda w, moment: w - sizes.RATE * moment, state["weights"], moments),
        "moments": moments,
        "means": jax.tree.map(moved, state["means"], means),
        "variances": jax.tree.map(moved, state["variances"], variances),
    }, loss


def _loss(w: Arrays, images: jax.Array, labels: jax.Array) -> tuple[jax.Array, tuple[Arrays, Arrays]]:
    """The loss, and each normalization's mean and variance over the whole batch."""
    means: Arrays = {}
    variances: Arrays = {}

    def convolved(x: jax.Array, own: sizes.Convolution) -> jax.Array:
        kernel, order = w[f"{own.name}/conv2d/kernel"].astype(x.dtype), ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, kernel, [own.stride] * 2, "SAME", dimension_numbers=order)
        y = y.astype(jnp.float32)
        count = y.size // own.outs
        mean = jnp.mean(y, (0, 1, 2))
        variance = jnp.mean(jnp.square(y - mean), (0, 1, 2))
        means[own.name], variances[own.name] = mean, variance * (count / max(1, count - 1))
        scale = jax.lax.rsqrt(variance + sizes.EPSILON) * w[f"{own.name}/batch_norm/scale"]
        return ((y - mean) * scale + w[f"{own.name}/batch_norm/bias"]).astype(x.dtype)

    x = jax.nn.relu(convolved(images, sizes.STEM))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for block in sizes.blocks():
        reduce, convolve, expand = block.convolutions
        y = convolved(jax.nn.relu(convolved(jax.nn.relu(convolved(x, reduce)), convolve)), expand)
        x = jax.nn.relu(y + (x if block.shortcut is None else convolved(x, block.shortcut)))
    logits = jnp.mean(x, (1, 2)) @ w["logits/kernel"].astype(x.dtype) + w["logits/bias"].astype(x.dtype)
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, None], -1)[:, 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - picked), (means, variances)
