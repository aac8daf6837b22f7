"""The training step of `transformer_step` with TensorFlow's DTensor.

The program sets layouts of weights and batch, and DTensor places the collectives.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.experimental import dtensor  # pyright: ignore[reportMissingImports]  (made when it is imported)

from benchmarks.measuring.side_by_side import Step
from benchmarks.transformer_step import (
    BETA_1,
    BETA_2,
    EPSILON,
    LEARNING_RATE,
    SMALL,
    Sizes,
    examples,
    initial_weights,
)


def dtensor_step(rows: int, cols: int, rules: Mapping[str, str], sizes: Sizes = SMALL) -> Step:
    """The step with DTensor. `rules` map dimensions to mesh axes, "rows" or "cols"."""
    cores = rows * cols
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cores)
    dtensor.initialize_accelerator_system("CPU")
    mesh = dtensor.create_mesh([("rows", rows), ("cols", cols)], devices=[f"CPU:{i}" for i in range(cores)])

    def placed(value: np.ndarray, dims: list[str]) -> tf.Tensor:
        specs = [rules.get(dim, dtensor.UNSHARDED) for dim in dims]
        layout = dtensor.Layout(specs, mesh)  # pyright: ignore[reportCallIssue]
        return dtensor.relayout(tf.constant(value), layout)

    names = sizes.names
    initial = initial_weights(sizes)
    weights = {name: dtensor.DVariable(placed(value, names[name])) for name, value in initial.items()}
    m, v = (
        {name: dtensor.DVariable(placed(np.zeros_like(value), names[name])) for name, value in initial.items()}
        for _ in range(2)
    )
    powers = [dtensor.DVariable(placed(np.array(beta, np.float32), [])) for beta in (BETA_1, BETA_2)]
    inputs, targets = (placed(value, ["batch", "length"]) for value in examples(sizes))
    future = np.where(np.tril(np.ones([sizes.length, sizes.length])) > 0, 0.0, -1e9).astype(np.float32)
    mask = placed(future, ["length", "memory"])

    def norm(x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * scale

    def loss_of(w: dict[str, tf.Tensor], inputs: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        x = tf.gather(w["embedding"], inputs) + w["positions"]
        for i in range(sizes.layers):
            own = {n.split("/")[1]: value for n, value in w.items() if n.startswith(f"layer_{i}/")}
            h = norm(x, own["attention_scale"])
            q, key, value = (tf.einsum("blm,mhk->bhlk", h, own[name]) for name in ("query", "key", "value"))
            scores = tf.nn.softmax(tf.einsum("bhlk,bhmk->bhlm", q * sizes.d_kv**-0.5, key) + mask)
            x += tf.einsum("bhlk,hkm->blm", tf.einsum("bhlm,bhmk->bhlk", scores, value), own["output"])
            h = tf.nn.relu(tf.einsum("blm,mf->blf", norm(x, own["ffn_scale"]), own["wi"]))
            x += tf.einsum("blf,fm->blm", h, own["wo"])
        logits = tf.einsum("blm,mv->blv", norm(x, w["final_scale"]), w["logits"])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))

    @tf.function(autograph=False)
    def step(inputs: tf.Tensor, targets: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of({name: w.read_value() for name, w in weights.items()}, inputs, targets, mask)
        grads = tape.gradient(loss, list(weights.values()))
        for (name, w), grad in zip(weights.items(), grads, strict=True):
            grad = tf.convert_to_tensor(grad)
            new_m = BETA_1 * m[name] + (1 - BETA_1) * grad
            new_v = BETA_2 * v[name] + (1 - BETA_2) * tf.square(grad)
            m[name].assign(new_m)
            v[name].assign(new_v)
            unbiased_m, unbiased_v = new_m / (1 - powers[0]), new_v / (1 - powers[1])
            w.assign_sub(LEARNING_RATE * unbiased_m / (tf.sqrt(unbiased_v) + EPSILON))
        for power, beta in zip(powers, (BETA_1, BETA_2), strict=True):
            power.assign(power * beta)
        return loss

    return lambda: step(inputs, targets, mask)
