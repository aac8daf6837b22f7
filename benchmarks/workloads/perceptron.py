"""A perceptron of many small layers, for the overhead of a step beyond its arithmetic."""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from benchmarks.measuring.side_by_side import Step
from benchmarks.perceptron_step import MOMENTUM, RATE, examples, initial_weights
from benchmarks.perceptron_step import PROGRAMS as IN_TENSORFLOW
from benchmarks.workloads.in_jax.transformer import donating, jax_mesh
from benchmarks.workloads.workload import Workload

WORKLOAD = Workload(__name__, "A perceptron of small layers", steps=100)

State = tuple[list[jax.Array], list[jax.Array]]


def in_jax(devices: int) -> Step:
    mesh = jax_mesh(all=devices)
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("all"))

    def loss_of(weights: list[jax.Array], x: jax.Array) -> jax.Array:
        y = x
        for w in weights:
            y = jax.nn.relu(y @ w)
        return jnp.mean(jnp.square(y - x))

    def step(state: State, x: jax.Array) -> tuple[State, jax.Array]:
        weights, moments = state
        loss, grads = jax.value_and_grad(loss_of)(weights, x)
        moments = [MOMENTUM * moment + grad for moment, grad in zip(moments, grads, strict=True)]
        return ([w - RATE * moment for w, moment in zip(weights, moments, strict=True)], moments), loss

    jitted = jax.jit(step, in_shardings=(whole, split), out_shardings=whole, donate_argnums=0)
    weights = [jnp.asarray(w) for w in initial_weights()]
    return donating(jitted, jax.device_put((weights, [jnp.zeros_like(w) for w in weights]), whole), examples())


PROGRAMS: dict[str, Callable[[], Step]] = {
    **IN_TENSORFLOW,
    "JAX, 1 device": functools.partial(in_jax, 1),
    "JAX, 8 devices, data parallel": functools.partial(in_jax, 8),
}
