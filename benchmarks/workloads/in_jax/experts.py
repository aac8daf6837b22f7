"""A layer of experts, hand-written in JAX, with the routing of `Top2Router`.

First choices come before second ones, and earlier tokens before later ones. Each expert has a fixed number of places
for each sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads import experts_sizes as sizes
from benchmarks.workloads.in_jax import adam as adam_jax
from benchmarks.workloads.in_jax.transformer import donating, jax_mesh


def in_jax(cores: int) -> Step:
    """The step in JAX. Sequences and experts are split over the same axis."""
    mesh = jax_mesh(all=cores)
    split, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["all"], []))
    of_weights = {"router": whole, "wi": split, "wo": split}
    shardings = {"weights": of_weights, "m": of_weights, "v": of_weights, "powers": whole}

    def step(state: dict[str, Any], x: jax.Array) -> tuple[dict[str, Any], jax.Array]:
        loss, grads = jax.value_and_grad(lambda w: jnp.mean(jnp.square(_mixture(w, x, mesh) - x)))(state["weights"])
        return adam_jax.updated(state, grads, sizes.LEARNING_RATE, {}), loss

    jitted = jax.jit(step, in_shardings=(shardings, split), out_shardings=(shardings, whole), donate_argnums=0)
    return donating(jitted, jax.device_put(adam_jax.started(sizes.initial_weights()), shardings), sizes.examples())


def _mixture(w: Mapping[str, jax.Array], x: jax.Array, mesh: Mesh) -> jax.Array:
    """Applies the layer to [batch, length, d_model]."""

    def by(array: jax.Array, *axes: str | None) -> jax.Array:
        return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec(*axes)))

    batch, length, d_model = x.shape
    places, gates = jax.vmap(_routed)(jax.nn.softmax(x @ w["router"]))
    # Place EXPERTS * CAPACITY is for tokens that find no room.
    tokens = jnp.full([batch, sizes.EXPERTS * sizes.CAPACITY + 1], length)
    numbers = jnp.broadcast_to(jnp.arange(length)[:, None], [length, 2])
    tokens = jax.vmap(lambda taken, place: taken.at[place].set(numbers))(tokens, places)[:, :-1]
    sent = jax.vmap(lambda row, own: jnp.take(row, own, 0, mode="fill", fill_value=0.0))(x, tokens)
    at_experts = by(sent.reshape(batch, sizes.EXPERTS, sizes.CAPACITY, d_model), None, "all")
    hidden = jax.nn.relu(jnp.einsum("becm,emf->becf", at_experts, w["wi"]))
    given = by(jnp.einsum("becf,efm->becm", hidden, w["wo"]), "all").reshape(
        batch, sizes.EXPERTS * sizes.CAPACITY, d_model
    )
    back = jax.vmap(lambda row, place: jnp.take(row, place, 0, mode="fill", fill_value=0.0))(given, places)
    return jnp.einsum("blcm,blc->blm", back, gates)


def _routed(probabilities: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The two places of each token among the places of all experts, and their weights, from [length, experts]."""
    weights, experts = jax.lax.top_k(probabilities, 2)
    weights /= jnp.sum(weights, -1, keepdims=True)
    in_order = jax.nn.one_hot(experts.T.reshape(-1), sizes.EXPERTS, dtype=jnp.int32)  # first choices, then second ones
    before = jnp.sum((jnp.cumsum(in_order, 0) - 1) * in_order, -1).reshape(2, -1).T
    return jnp.where(
        before < sizes.CAPACITY, experts * sizes.CAPACITY + before, sizes.EXPERTS * sizes.CAPACITY
    ), weights
