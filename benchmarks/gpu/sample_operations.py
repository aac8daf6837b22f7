"""Compares a sample of operations and their gradients on a GPU and on a virtual CPU."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.mesh_impl.mesh_impl import MeshImpl
from meshtf.testing import assert_close

BATCH, LENGTH, FEATURES = mtf.Dimension("batch", 4), mtf.Dimension("length", 8), mtf.Dimension("features", 16)
INPUTS = {
    "x": mtf.TensorSpec([BATCH, LENGTH, FEATURES]),
    "ids": mtf.TensorSpec([BATCH, LENGTH], tf.int32),
    "image": mtf.TensorSpec("batch:4 height:8 width:8 channels:4"),
}
_TERMS = 1 << 12
"""The most roundings that lead to a value. A convolution's gradient has the most; functions also differ by backend."""


def program(x: mtf.Tensor, ids: mtf.Tensor, image: mtf.Tensor) -> Mapping[str, mtf.Tensor]:
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
        "norm": x * mtf.rsqrt(mtf.reduce_mean(mtf.square(x), reduced_dim=FEATURES) + 1e-6),
    }
    loss = mtf.add_n([mtf.reduce_sum(mtf.square(y)) for y in results.values()])
    gradients = mtf.gradients([loss], [x, image, w, kernel])
    own = dict(zip(("x", "image", "w", "kernel"), gradients, strict=True))
    return {**results, "places": places, **{f"gradient of {name}": g for name, g in own.items() if g is not None}}


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
    }
    found = mtf.function(program, mesh_impl, inputs=INPUTS)(**feeds)
    return {name: y.numpy() for name, y in found.items()}
