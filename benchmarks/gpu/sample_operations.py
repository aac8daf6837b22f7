"""Compares a sample of operations and their gradients on a GPU and on a virtual CPU.

Some work is done differently on a GPU: a large input goes there in chunks, the condition of a loop is read only after
every eighth iteration, and int8 numbers are multiplied directly.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.layers.transformer import TokenLoss
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.quantization import Quantization, quantized_weights
from meshtf.testing import assert_close

BATCH, LENGTH, FEATURES = mtf.Dimension("batch", 4), mtf.Dimension("length", 8), mtf.Dimension("features", 16)
INPUTS = {
    "x": mtf.TensorSpec([BATCH, LENGTH, FEATURES]),
    "ids": mtf.TensorSpec([BATCH, LENGTH], tf.int32),
    "image": mtf.TensorSpec("batch:4 height:8 width:8 channels:4"),
    "large": mtf.TensorSpec("rows:8192 columns:256"),
}
_TERMS = 1 << 12
"""The most roundings that lead to a value. A convolution's gradient has the most; functions also differ by backend."""


def program(x: mtf.Tensor, ids: mtf.Tensor, image: mtf.Tensor, large: mtf.Tensor) -> Mapping[str, mtf.Tensor]:
    """The results of operations by name, and the gradients of their sum."""
    hidden, window = mtf.Dimension("hidden", 16), [mtf.Dimension("filter_height", 3), mtf.Dimension("filter_width", 3)]
    w = mtf.random_normal(x.mesh, [FEATURES, hidden])
    kernel = mtf.random_normal(x.mesh, [*window, image.shape.dims[-1], mtf.Dimension("out", 4)])
    largest, places = mtf.top_k(x, FEATURES, mtf.Dimension("k", 3))
    results = {
        "einsum": mtf.einsum([x, w], reduced_dims=[FEATURES]),
        "softmax": mtf.softmax(x, FEATURES),
        "cumsum": mtf.cumsum(x, LENGTH),
        "gather": mtf.gather(w, ids, FEATURES),
        "largest": largest,
        "exp": mtf.exp(x),
        "gelu": mtf.gelu(x),
        "conv2d": mtf.conv2d(image, kernel),
        "max": mtf.reduce_max(x, reduced_dim=LENGTH),
        "loss in blocks": _losses(x, ids),
        "norm": x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=FEATURES) + 1e-6),
    }
    loss = mtf.add_n([mtf.reduce_sum(mtf.square(y)) for y in results.values()])
    gradients = mtf.gradients([loss], [x, image, w, kernel])
    own = dict(zip(("x", "image", "w", "kernel"), gradients, strict=True))
    results["large"] = mtf.reduce_max(large, reduced_dim="columns")
    results["loop"] = _doubled(x)
    with quantized_weights(Quantization("int8", activations="dynamic")):
        results["int8"] = mtf.layers.dense(x, [hidden], name="int8")
    return {**results, "places": places, **{f"gradient of {name}": g for name, g in own.items() if g is not None}}


def _losses(x: mtf.Tensor, ids: mtf.Tensor) -> mtf.Tensor:
    """The losses of tokens whose logits are computed in two blocks."""
    loss, vocabulary = TokenLoss(blocks=2), mtf.layers.VocabularyEmbedding(FEATURES.size)
    return loss.metrics_of_vectors(x, FEATURES, ids, None, vocabulary, is_training=True)["loss"][0]


def _doubled(x: mtf.Tensor) -> mtf.Tensor:
    """Doubles the rows whose largest element is small, again and again, until there is none."""

    def is_small(y: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_max(mtf.abs(y), reduced_dim=FEATURES) < 1000.0

    def again(y: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.where(is_small(y), 2.0 * y, y)]

    (y,) = mtf.while_loop(lambda y: mtf.reduce_any(is_small(y)), again, x, maximum_iterations=20, may_overrun=True)
    return y


def check_operations() -> str:
    """Compares all results. Both devices multiply in full float32.

    Raises:
      AssertionError: a result differs by more than rounding. The message names it.
    """
    mtf.virtual_cpus(1)
    on_gpu = results_of(mtf.GpuMeshImpl("all:1", "", product_precision="highest"))
    on_cpu = results_of(mtf.SpmdMeshImpl("all:1", ""))
    for name, expected in on_cpu.items():
        assert_close(on_gpu[name], expected, terms=_TERMS, what=name)
    return f"{len(on_cpu)} results and gradients are those of the CPU"


def results_of(mesh_impl: MeshImpl) -> Mapping[str, np.ndarray]:
    """The results on a mesh, from the same inputs and seed."""
    generator = np.random.default_rng(0)
    feeds = {
        "x": generator.normal(size=[4, 8, 16]).astype(np.float32),
        "ids": generator.integers(0, 16, [4, 8]).astype(np.int32),
        "image": generator.normal(size=[4, 8, 8, 4]).astype(np.float32),
        "large": generator.normal(size=[8192, 256]).astype(np.float32),
    }
    found = mtf.function(program, mesh_impl, inputs=INPUTS)(**feeds)
    return {name: y.numpy() for name, y in found.items()}
