"""Handwritten digits: trains the perceptron of `digits_mlp.gin` for 300 steps, including building and compilation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import tensorflow as tf
from jax.sharding import NamedSharding, PartitionSpec

import meshtf as mtf
from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads.in_jax import adam as adam_jax
from benchmarks.workloads.in_jax.transformer import jax_mesh
from benchmarks.workloads.workload import Workload
from meshtf.models.mlp_classifier import MLPClassifier
from meshtf.train.digits import digits

WORKLOAD = Workload(__name__, "Digits from start to finish", steps=1, rounds=5, warm_up=0)

PIXELS, HIDDEN, CLASSES, BATCH, STEPS, RATE, WEIGHT_DECAY = 64, 512, 10, 64, 300, 0.008, 0.1


def initial_weights() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        "hidden_0/kernel": generator.normal(0, PIXELS**-0.5, [PIXELS, HIDDEN]).astype(np.float32),
        "hidden_0/bias": np.zeros([HIDDEN], np.float32),
        "logits/kernel": generator.normal(0, HIDDEN**-0.5, [HIDDEN, CLASSES]).astype(np.float32),
        "logits/bias": np.zeros([CLASSES], np.float32),
    }


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    examples, generator = digits().train, np.random.default_rng(1)
    for _ in range(STEPS):
        rows = generator.integers(0, len(examples["labels"]), BATCH)
        yield examples["images"][rows], examples["labels"][rows]


def held_out() -> tuple[np.ndarray, np.ndarray]:
    examples = digits().held_out
    return examples["images"], examples["labels"]


def in_keras() -> float:
    layer = tf.keras.layers.Dense
    model = tf.keras.Sequential([layer(HIDDEN, activation="relu"), layer(CLASSES)])
    model.build([BATCH, PIXELS])
    model.set_weights(list(initial_weights().values()))
    optimizer = tf.keras.optimizers.AdamW(RATE, WEIGHT_DECAY, epsilon=adam_jax.EPSILON)
    model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    for images, labels in batches():
        model.train_on_batch(images, labels)
    return float(model.test_on_batch(*held_out()))


def in_jax(cores: int) -> float:
    mesh = jax_mesh(all=cores)
    whole, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("all"))

    def loss_of(w: dict[str, jax.Array], images: jax.Array, labels: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(images @ w["hidden_0/kernel"] + w["hidden_0/bias"])
        logits = hidden @ w["logits/kernel"] + w["logits/bias"]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, labels[:, None], -1)[:, 0])

    def step(state: dict, images: jax.Array, labels: jax.Array) -> dict:
        grads = jax.grad(loss_of)(state["weights"], images, labels)
        return adam_jax.updated(state, grads, RATE, dict.fromkeys(grads, WEIGHT_DECAY))

    jitted = jax.jit(step, in_shardings=(whole, split, split), out_shardings=whole, donate_argnums=0)
    state = jax.device_put(adam_jax.started(initial_weights()), whole)
    for batch in batches():
        # Without waiting, overlapping steps can occupy each other's threads, so that an all-reduce never ends.
        state = jax.block_until_ready(jitted(state, *batch))
    return float(jax.jit(loss_of)(state["weights"], *held_out()))


def on_virtual_cpus(mesh_shape: str, layout: str) -> float:
    mtf.virtual_cpus(mtf.convert_to_shape(mesh_shape).size)
    mesh_impl, model = mtf.SpmdMeshImpl(mesh_shape, layout), MLPClassifier(CLASSES, (HIDDEN,))

    def loss(images: mtf.Tensor, labels: mtf.Tensor, is_training: bool) -> mtf.Tensor:
        return mtf.reduce_mean(model.metrics({"images": images, "labels": labels}, is_training)["loss"])

    def train_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        value = loss(images, labels, is_training=True)
        mtf.optimize.AdamWOptimizer(RATE, weight_decay=WEIGHT_DECAY, epsilon=adam_jax.EPSILON).minimize(value)
        return value

    def program(function: Callable[..., mtf.Tensor], rows: int, store: mtf.VariableStore) -> mtf.Function:
        batch, pixels = mtf.Dimension("batch", rows), mtf.Dimension("pixels", PIXELS)
        inputs = {"images": mtf.TensorSpec([batch, pixels]), "labels": mtf.TensorSpec([batch], tf.int32)}
        return mtf.function(function, mesh_impl, inputs=inputs, variables=store)

    store = mtf.VariableStore()
    step = program(train_step, BATCH, store)
    step.initialize(initial_weights())
    for images, labels in batches():
        step(images=images, labels=labels)
    images, labels = held_out()
    evaluation = program(functools.partial(loss, is_training=False), len(labels), store)
    return float(evaluation(images=images, labels=labels))


def _again(training: Callable[..., float], *arguments: object) -> Step:
    """Makes a step that runs a whole training."""
    return functools.partial(training, *arguments)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "Keras, 1 device": functools.partial(_again, in_keras),
    "meshtf, 1 core": functools.partial(_again, on_virtual_cpus, "all:1", ""),
    "meshtf, 2x4, data and model": functools.partial(
        _again, on_virtual_cpus, "rows:2;cols:4", "batch:rows;hidden:cols"
    ),
    "meshtf, 8 cores, data": functools.partial(_again, on_virtual_cpus, "all:8", "batch:all"),
    "JAX, 1 device": functools.partial(_again, in_jax, 1),
    "JAX, 8 devices, data": functools.partial(_again, in_jax, 8),
}
