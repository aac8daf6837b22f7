"""A training step of a layer of 16 experts, of which each token uses two."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads import experts_sizes as sizes
from benchmarks.workloads.in_jax.experts import in_jax
from benchmarks.workloads.workload import Workload
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.moe import MixtureOfExperts, Top2Router
from meshtf.layers.transformer import Context
from meshtf.mesh_impl.mesh_impl import MeshImpl

WORKLOAD = Workload(__name__, "A mixture of experts", steps=5, rounds=5)


def on_virtual_cpus(cores: int) -> Step:
    mtf.virtual_cpus(cores)
    mesh_impl = mtf.SpmdMeshImpl(f"all:{cores}", "batch:all;experts:all" if cores > 1 else "")
    step = with_weights(experts_step(mesh_impl))
    given = tf.constant(sizes.examples())
    return lambda: step(x=given)


def experts_step(mesh_impl: MeshImpl) -> mtf.Function:
    """The step in meshtf, with random weights."""
    layer = MixtureOfExperts(sizes.EXPERTS, sizes.D_FF, Top2Router(second_is_random=False))

    def train_step(x: mtf.Tensor) -> mtf.Tensor:
        loss = mtf.reduce_mean(mtf.square(layer(x, Context(AttentionMask(), Tokens())) - x))
        mtf.optimize.AdamWOptimizer(sizes.LEARNING_RATE, weight_decay=0.0, epsilon=1e-8).minimize(loss)
        return loss

    x = mtf.TensorSpec([("batch", sizes.BATCH), ("length", sizes.LENGTH), ("d_model", sizes.D_MODEL)])
    return mtf.function(train_step, mesh_impl, inputs={"x": x})


def with_weights(step: mtf.Function) -> mtf.Function:
    """The step, with the initial weights in its variables."""
    values = sizes.initial_weights()
    step.initialize({name if name == "router" else f"{name}/kernel": value for name, value in values.items()})
    return step


PROGRAMS: dict[str, Callable[[], Step]] = {
    "meshtf, 1 core": functools.partial(on_virtual_cpus, 1),
    "meshtf, 8 cores, data and experts": functools.partial(on_virtual_cpus, 8),
    "JAX, 1 device": functools.partial(in_jax, 1),
    "JAX, 8 devices, data and experts": functools.partial(in_jax, 8),
}
