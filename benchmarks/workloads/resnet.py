"""ResNet-50's training step on images of 64 x 64, split by the batch and by their height."""

from __future__ import annotations

import functools
from collections.abc import Callable

import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.side_by_side import Step
from benchmarks.workloads import resnet_sizes as sizes
from benchmarks.workloads.in_jax.resnet import in_jax
from benchmarks.workloads.resnet_keras import in_keras
from benchmarks.workloads.workload import Workload
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.models.resnet import ResNet50

WORKLOAD = Workload(__name__, "ResNet-50, images of 64 x 64", steps=2, rounds=3, warm_up=0)


def on_virtual_cpus(mesh_shape: str, layout: str) -> Step:
    mtf.virtual_cpus(mtf.convert_to_shape(mesh_shape).size)
    step = resnet_step(mtf.SpmdMeshImpl(mesh_shape, layout))
    step.initialize(sizes.initial_weights())
    images, labels = map(tf.constant, sizes.examples())
    return lambda: step(images=images, labels=labels)


def resnet_step(mesh_impl: MeshImpl) -> mtf.Function:
    """The step in meshtf, with random weights."""
    model = ResNet50(
        sizes.CLASSES,
        sizes.STAGES,
        batch_norm_momentum=sizes.BATCH_NORM_MOMENTUM,
        batch_norm_epsilon=sizes.EPSILON,
    )
    batch = mtf.Dimension("batch", sizes.BATCH)
    sides = [mtf.Dimension(name, sizes.SIDE) for name in ("height", "width")]
    image = [batch, *sides, mtf.Dimension("channels", sizes.CHANNELS)]

    def train_step(images: mtf.Tensor, labels: mtf.Tensor) -> mtf.Tensor:
        metrics = model.metrics({"images": images, "labels": labels}, is_training=True)
        loss = mtf.reduce_mean(metrics["loss"])
        mtf.optimize.MomentumOptimizer(sizes.RATE, sizes.MOMENTUM).minimize(loss)
        return loss

    dtype = tf.as_dtype(sizes.DTYPE)
    inputs = {"images": mtf.TensorSpec(image, dtype), "labels": mtf.TensorSpec([batch], tf.int32)}
    policy = mtf.VariableDType(activation_dtype=dtype)
    return mtf.function(train_step, mesh_impl, inputs=inputs, variable_dtype=policy)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "Keras, 1 device": in_keras,
    "meshtf, 1 core": functools.partial(on_virtual_cpus, "all:1", ""),
    "meshtf, 8 cores, data": functools.partial(on_virtual_cpus, "all:8", "batch:all"),
    "meshtf, 4x2, data and height": functools.partial(on_virtual_cpus, "rows:4;cols:2", "batch:rows;height:cols"),
    "JAX, 1 device": functools.partial(in_jax, 1, 1),
    "JAX, 8 devices, data": functools.partial(in_jax, 8, 1),
    "JAX, 4x2, data and height": functools.partial(in_jax, 4, 2),
}
