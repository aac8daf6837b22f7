"""Similarities and the contrastive loss against formulas over the whole batch, with gradients, under layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import interpret, plan

BATCH, D = mtf.Dimension("batch", 8), mtf.Dimension("d", 4)
LAYOUTS = ["batch:rows+cols", "batch:rows;d:cols", "d:cols"]


def test_the_whole_batch_is_compared(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        temperature = mtf.exp(mtf.get_variable(x.mesh, "temperature", [], initializer=mtf.ones))
        one_way = mtf.layers.contrastive_loss(x, y, "batch", "d", scale=2.0, is_symmetric=False, is_normalized=True)
        return [mtf.layers.contrastive_loss(x, y, BATCH, D, scale=temperature), one_way]

    def formulas(variables: Any, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        cosines = tf.matmul(tf.math.l2_normalize(x, 1), tf.math.l2_normalize(y, 1), transpose_b=True)
        logits, labels = cosines * tf.exp(variables["temperature"]), tf.range(8)
        there, back = (
            tf.nn.sparse_softmax_cross_entropy_with_logits(labels, z) for z in (logits, tf.transpose(logits))
        )
        products = 2.0 * tf.matmul(x, y, transpose_b=True)
        return [(there + back) / 2, tf.nn.sparse_softmax_cross_entropy_with_logits(labels, products)]

    check_layers(layers, formulas, {"x": normal([BATCH, D]), "y": normal([BATCH, D], 1)}, LAYOUTS)


def test_no_core_has_all_similarities() -> None:
    """Of a batch split over 4 cores, each has a quarter of the rows."""
    inputs = {name: mtf.TensorSpec("batch:64 d:4") for name in ("x", "y")}
    planned = plan(lambda x, y: mtf.layers.contrastive_loss(x, y, "batch", "d"), inputs, "rows:4", "batch:rows")
    sizes = [value.slice_shape for step in planned.instructions for value in step.outputs]
    assert max(np.prod(size) for size in sizes) == 64 * 64 // 4


def test_cosine_similarity(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.layers.cosine_similarity(x, y, "d")]

    def formulas(variables: Any, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [tf.reduce_sum(tf.math.l2_normalize(x, 1) * tf.math.l2_normalize(y, 1), 1)]

    check_layers(layers, formulas, {"x": normal([BATCH, D]), "y": normal([BATCH, D], 1)}, LAYOUTS[1:])


def test_a_vector_of_zeros_is_like_nothing() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.layers.cosine_similarity(x, mtf.ones_like(x), "d")
        return [y, mtf.gradients([y], [x])[0]]

    found, gradient = interpret(program, {"x": ("n:1 d:2", [[0.0, 0.0]])}, "one:1").results
    assert found == [0.0]
    assert np.isfinite(gradient).all()


def test_other_dimensions_are_refused(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r"y need the dimensions of x, \[batch:8 d:4\], not \[batch:8\]"):
        build(lambda x: mtf.layers.contrastive_loss(x, mtf.zeros(x.mesh, [BATCH]), "batch", "d"), [BATCH, D])
    with pytest.raises(ShapeError, match=r'no dimension "bach" .*did you mean "batch"'):
        build(lambda x: mtf.layers.contrastive_loss(x, x, "bach", "d"), [BATCH, D])
    with pytest.raises(ShapeError, match=r"must have two dimensions.*they have \[views:2 batch:8 d:4\]"):
        build(lambda x: mtf.layers.contrastive_loss(x, x, "batch", "d"), [("views", 2), BATCH, D])
    with pytest.raises(ShapeError, match=r'pairs along "d" and vectors along "d"'):
        build(lambda x: mtf.layers.contrastive_loss(x, x, "d", "d"), [BATCH, D])
