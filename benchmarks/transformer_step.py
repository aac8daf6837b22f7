"""Compares one training step of a small Transformer in meshtf with the same step, hand-written as a tf.function.

    python -m benchmarks.transformer_step

The model has 4 layers, d_model 256, 8 heads and d_ff 1024. Its vocabulary is bytes, its batch 16 x 128, its optimizer
Adam. Each program has a separate process, as usual, with TensorFlow's default number of threads for one device.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import meshtf as mtf
from benchmarks.measuring.machine import machine
from benchmarks.measuring.side_by_side import Step, as_table, side_by_side
from meshtf.mesh_impl.mesh_impl import MeshImpl

DATA_AND_MODEL = "batch:rows;heads:cols;d_ff:cols;vocab:cols"
LEARNING_RATE, BETA_1, BETA_2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of the model and its batch."""

    layers: int
    d_model: int
    heads: int
    d_ff: int
    vocab: int
    batch: int
    length: int

    @property
    def d_kv(self) -> int:
        return self.d_model // self.heads

    @property
    def names(self) -> dict[str, list[str]]:
        """The names of the dimensions of each variable."""
        of_layers = [f"layer_{i}/{name}" for i in range(self.layers) for name in LAYER_NAMES]
        variables = ["embedding", "positions", *of_layers, "final_scale", "logits"]
        return {name: NAMES[name.split("/")[-1]].split() for name in variables}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(getattr(self, dim) for dim in dims) for name, dims in self.names.items()}


SMALL = Sizes(layers=4, d_model=256, heads=8, d_ff=1024, vocab=256, batch=16, length=128)

NAMES = {
    "embedding": "vocab d_model",
    "positions": "length d_model",
    "query": "d_model heads d_kv",
    "key": "d_model heads d_kv",
    "value": "d_model heads d_kv",
    "output": "heads d_kv d_model",
    "wi": "d_model d_ff",
    "wo": "d_ff d_model",
    "attention_scale": "d_model",
    "ffn_scale": "d_model",
    "final_scale": "d_model",
    "logits": "d_model vocab",
}
LAYER_NAMES = ("query", "key", "value", "output", "wi", "wo", "attention_scale", "ffn_scale")


def initial_weights(sizes: Sizes = SMALL) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {
        name: np.ones(shape, np.float32)
        if name.endswith("scale")
        else generator.normal(0, 0.02 if name == "embedding" else 0.05, shape).astype(np.float32)
        for name, shape in sizes.shapes.items()
    }


def examples(sizes: Sizes = SMALL) -> tuple[np.ndarray, np.ndarray]:
    text = np.random.default_rng(1).integers(0, sizes.vocab, [sizes.batch, sizes.length + 1], np.int32)
    return text[:, :-1].copy(), text[:, 1:].copy()


def by_hand(sizes: Sizes = SMALL) -> Callable[[], tf.Tensor]:
    """The step as usually written for one device, with TensorFlow's fused Adam."""
    batch, length, d_model, heads, d_kv = sizes.batch, sizes.length, sizes.d_model, sizes.heads, sizes.d_kv
    weights = {name: tf.Variable(value) for name, value in initial_weights(sizes).items()}
    moments = {name: [tf.Variable(tf.zeros_like(w)) for _ in range(2)] for name, w in weights.items()}
    powers = [tf.Variable(BETA_1), tf.Variable(BETA_2)]
    mask = tf.constant(np.where(np.tril(np.ones([length, length])) > 0, 0.0, -1e9).astype(np.float32))
    inputs, targets = map(tf.constant, examples(sizes))

    def norm(x: tf.Tensor, scale: tf.Tensor) -> tf.Tensor:
        return x * tf.math.rsqrt(tf.reduce_mean(tf.square(x), -1, keepdims=True) + 1e-6) * scale

    def matmul(x: tf.Tensor, w: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.reshape(x, [-1, w.shape[0]]) @ w, [*x.shape[:-1], w.shape[1]])

    def attention(x: tf.Tensor, w: dict[str, tf.Tensor]) -> tf.Tensor:
        q, k, v = (
            tf.transpose(
                tf.reshape(matmul(x, tf.reshape(w[n], [d_model, -1])), [batch, length, heads, d_kv]), [0, 2, 1, 3]
            )
            for n in ("query", "key", "value")
        )
        scores = tf.nn.softmax(tf.matmul(q * d_kv**-0.5, k, transpose_b=True) + mask)
        mixed = tf.reshape(tf.transpose(tf.matmul(scores, v), [0, 2, 1, 3]), [batch, length, d_model])
        return matmul(mixed, tf.reshape(w["output"], [d_model, d_model]))

    def loss_of(w: dict[str, tf.Tensor]) -> tf.Tensor:
        x = tf.gather(w["embedding"], inputs) + w["positions"]
        for i in range(sizes.layers):
            own = {n.split("/")[1]: v for n, v in w.items() if n.startswith(f"layer_{i}/")}
            x += attention(norm(x, own["attention_scale"]), own)
            x += matmul(tf.nn.relu(matmul(norm(x, own["ffn_scale"]), own["wi"])), own["wo"])
        logits = matmul(norm(x, w["final_scale"]), w["logits"])
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits))

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            loss = loss_of({name: tf.convert_to_tensor(w) for name, w in weights.items()})
        grads = tape.gradient(loss, list(weights.values()))
        for (name, w), grad in zip(weights.items(), grads, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=w.handle,
                m=moments[name][0].handle,
                v=moments[name][1].handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=LEARNING_RATE,
                beta1=BETA_1,
                beta2=BETA_2,
                epsilon=EPSILON,
                grad=tf.convert_to_tensor(grad),
            )
        for power, beta in zip(powers, (BETA_1, BETA_2), strict=True):
            power.assign(power * beta)
        return loss

    return step


def with_weights(step: mtf.Function, sizes: Sizes = SMALL) -> mtf.Function:
    """The step, with the initial weights in its variables. As in the hand-written program, no copies of them stay."""
    step.initialize(initial_weights(sizes))
    return step


def fed(step: mtf.Function, sizes: Sizes = SMALL) -> Callable[[], tf.Tensor]:
    """A call of the step with the initial weights and the batch."""
    with_weights(step, sizes)
    inputs, targets = map(tf.constant, examples(sizes))
    return lambda: step(inputs=inputs, targets=targets)


def meshtf_step(mesh_impl: MeshImpl, sizes: Sizes = SMALL) -> mtf.Function:
    """The step in meshtf, with weights of zero."""
    batch, length, memory, vocab, d_model, heads = (
        mtf.Dimension(name, size)
        for name, size in [
            ("batch", sizes.batch),
            ("length", sizes.length),
            ("memory", sizes.length),
            ("vocab", sizes.vocab),
            ("d_model", sizes.d_model),
            ("heads", sizes.heads),
        ]
    )

    shapes = {name: [(dim, getattr(sizes, dim)) for dim in dims] for name, dims in sizes.names.items()}

    def norm(x: mtf.Tensor, scale: mtf.Tensor) -> mtf.Tensor:
        return x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=d_model) + 1e-6) * scale

    def attention(x: mtf.Tensor, w: dict[str, mtf.Tensor], mask: mtf.Tensor) -> mtf.Tensor:
        renamed = mtf.rename_dimension(x, "length", "memory")
        query = mtf.einsum([x, w["query"]], reduced_dims=[d_model]) * sizes.d_kv**-0.5
        key = mtf.einsum([renamed, w["key"]], reduced_dims=[d_model])
        value = mtf.einsum([renamed, w["value"]], reduced_dims=[d_model])
        scores = mtf.softmax(mtf.einsum([query, key], output_shape=[batch, heads, length, memory]) + mask, memory)
        mixed = mtf.einsum([scores, value], reduced_dims=[memory])
        return mtf.einsum([mixed, w["output"]], output_shape=x.shape)

    def train_step(mesh: mtf.Mesh, inputs: mtf.Tensor, targets: mtf.Tensor) -> mtf.Tensor:
        w = {name: mtf.get_variable(mesh, name, dims, initializer=mtf.zeros) for name, dims in shapes.items()}
        is_future = mtf.greater(mtf.range(mesh, memory), mtf.range(mesh, length), output_shape=[length, memory])
        mask = mtf.where(is_future, mtf.constant(mesh, -1e9), 0.0)
        x = mtf.gather(w["embedding"], inputs, vocab) + w["positions"]
        for i in range(sizes.layers):
            own = {n.split("/")[1]: v for n, v in w.items() if n.startswith(f"layer_{i}/")}
            x += attention(norm(x, own["attention_scale"]), own, mask)
            hidden = mtf.relu(mtf.einsum([norm(x, own["ffn_scale"]), own["wi"]], reduced_dims=[d_model]))
            x += mtf.einsum([hidden, own["wo"]], output_shape=x.shape)
        logits = mtf.einsum([norm(x, w["final_scale"]), w["logits"]], reduced_dims=[d_model])
        loss = mtf.reduce_mean(mtf.layers.softmax_cross_entropy_with_logits(logits, targets, vocab))
        mtf.optimize.AdamWOptimizer(LEARNING_RATE, BETA_1, BETA_2, EPSILON, weight_decay=0.0).minimize(loss)
        return loss

    spec = mtf.TensorSpec([batch, length], tf.int32)
    return mtf.function(train_step, mesh_impl, inputs={"inputs": spec, "targets": spec})


def on_virtual_cpus(mesh_shape: str, layout: str, sizes: Sizes = SMALL) -> Step:
    """The step in meshtf, on a mesh of virtual CPUs."""
    mtf.virtual_cpus(mtf.convert_to_shape(mesh_shape).size)
    return fed(meshtf_step(mtf.SpmdMeshImpl(mesh_shape, layout), sizes), sizes)


PROGRAMS: dict[str, Callable[[], Step]] = {
    "by hand, 1 device": by_hand,
    "meshtf, 1 core": functools.partial(on_virtual_cpus, "all:1", ""),
    "meshtf, 8 cores, data parallel": functools.partial(on_virtual_cpus, "all:8", "batch:all"),
    "meshtf, 4x2, data and model": functools.partial(on_virtual_cpus, "rows:4;cols:2", DATA_AND_MODEL),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10, help="steps of each program in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS), help="programs; the first is the baseline")
    arguments = parser.parse_args()
    print(machine())
    print(as_table(side_by_side("benchmarks.transformer_step", arguments.only, arguments.steps, arguments.rounds)))


if __name__ == "__main__":
    main()
