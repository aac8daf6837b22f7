"""Measures the overhead of a training step, beyond its arithmetic, with a perceptron of many small layers.

    python -m benchmarks.perceptron_step

32 layers of 64 units with a relu, batch 64, squared error, SGD with momentum 0.9: a millisecond of arithmetic.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.measuring.side_by_side import Step, as_table, side_by_side

LAYERS, UNITS, BATCH, RATE, MOMENTUM = 32, 64, 64, 1e-3, 0.9


def initial_weights() -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    return [generator.normal(0, (2 / UNITS) ** 0.5, [UNITS, UNITS]).astype(np.float32) for _ in range(LAYERS)]


def examples() -> np.ndarray:
    return np.random.default_rng(1).normal(size=[BATCH, UNITS]).astype(np.float32)


def by_hand() -> Step:
    """The step written by hand, with TensorFlow's fused update."""
    weights = [tf.Variable(w) for w in initial_weights()]
    moments = [tf.Variable(tf.zeros_like(w)) for w in weights]
    x = tf.constant(examples())

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = x
            for w in weights:
                y = tf.nn.relu(y @ w)
            loss = tf.reduce_mean(tf.square(y - x))
        for w, moment, grad in zip(weights, moments, tape.gradient(loss, weights), strict=True):
            tf.raw_ops.ResourceApplyMomentum(
                var=w.handle, accum=moment.handle, lr=RATE, grad=grad, momentum=MOMENTUM, use_locking=False
            )
        return loss

    return step


def in_keras() -> Step:
    layer = tf.keras.layers.Dense
    model = tf.keras.Sequential([layer(UNITS, activation="relu", use_bias=False) for _ in range(LAYERS)])
    model.build([BATCH, UNITS])
    model.set_weights(initial_weights())
    model.compile(tf.keras.optimizers.SGD(RATE, momentum=MOMENTUM), "mse")
    x = tf.constant(examples())

    def step() -> float:
        model.reset_metrics()
        return float(model.train_on_batch(x, x))

    return step


def on_virtual_cpus(cores: int) -> Step:
    mtf.virtual_cpus(cores)
    batch, units = mtf.Dimension("batch", BATCH), mtf.Dimension("units", UNITS)

    def train_step(mesh: mtf.Mesh, x: mtf.Tensor) -> mtf.Tensor:
        y = x
        for i in range(LAYERS):
            new = mtf.Dimension(f"units_{i}", UNITS)
            w = mtf.get_variable(mesh, f"w_{i}", [y.shape.dims[-1], new], initializer=mtf.zeros)
            y = mtf.relu(mtf.einsum([y, w], output_shape=[batch, new]))
        loss = mtf.reduce_mean(mtf.square(mtf.rename_dimension(y, y.shape.dims[-1].name, units.name) - x))
        mtf.optimize.MomentumOptimizer(RATE, MOMENTUM).minimize(loss)
        return loss

    mesh_impl = mtf.SpmdMeshImpl(f"all:{cores}", "batch:all" if cores > 1 else "")
    step = mtf.function(train_step, mesh_impl, inputs={"x": mtf.TensorSpec([batch, units])})
    step.initialize({f"w_{i}": initial for i, initial in enumerate(initial_weights())})
    x = tf.constant(examples())
    return lambda: step(x=x)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "by hand, 1 device": by_hand,
    "Keras, 1 device": in_keras,
    "meshtf, 1 core": functools.partial(on_virtual_cpus, 1),
    "meshtf, 8 cores, data parallel": functools.partial(on_virtual_cpus, 8),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100, help="steps of each program in a round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    print(as_table(side_by_side("benchmarks.perceptron_step", list(PROGRAMS), arguments.steps, arguments.rounds)))


if __name__ == "__main__":
    main()
