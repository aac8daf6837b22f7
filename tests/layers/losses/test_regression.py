"""Losses of numbers and scores against formulas, with gradients, under layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, GraphError, ShapeError

BATCH, CLASSES = mtf.Dimension("batch", 4), mtf.Dimension("classes", 6)


def test_huber_and_hinge(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    shape, x = normal([BATCH, CLASSES])
    targets = np.sign(np.random.default_rng(1).normal(size=x.shape)).astype(np.float32)

    def layers(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.layers.huber_loss(x, y), mtf.layers.huber_loss(3.0 * x, y, 0.5), mtf.layers.hinge_loss(x, y)]

    def formulas(variables: Any, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        near, far = x - y, tf.abs(3.0 * x - y)
        return [
            tf.where(tf.abs(near) <= 1, 0.5 * near**2, tf.abs(near) - 0.5),
            tf.where(far <= 0.5, 0.5 * far**2, 0.5 * far - 0.125),
            tf.maximum(1 - y * x, 0),
        ]

    check_layers(layers, formulas, {"x": (shape, x), "y": (shape, targets)}, ["batch:rows;classes:cols"])


def test_what_is_refused(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(GraphError, match=r"delta must be positive, and is 0"):
        build(lambda x: mtf.layers.huber_loss(x, x, 0), [BATCH])
    with pytest.raises(ShapeError, match=r"targets need the dimensions of predictions, \[batch:4\], not \[classes:6\]"):
        build(lambda x: mtf.layers.huber_loss(x, mtf.zeros(x.mesh, [CLASSES])), [BATCH])
    with pytest.raises(DtypeError, match=r"scores must be floating, not int32; convert with mtf\.cast"):
        build(lambda x: mtf.layers.hinge_loss(mtf.to_int32(x), x), [BATCH])
