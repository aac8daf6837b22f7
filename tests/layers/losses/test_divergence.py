"""The Kullback-Leibler divergence against Keras, with gradients, under layouts, and of probabilities of 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret
from tests.house.keras_module import keras

BATCH, CLASSES = mtf.Dimension("batch", 4), mtf.Dimension("classes", 6)


def test_as_in_keras(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.layers.kl_divergence(mtf.log_softmax(x, CLASSES), mtf.softmax(y, CLASSES), "classes")]

    def formulas(variables: Any, x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        return [keras().losses.KLDivergence(reduction="none")(tf.nn.softmax(y), tf.nn.softmax(x))]

    inputs = {"x": normal([BATCH, CLASSES]), "y": normal([BATCH, CLASSES], 1)}
    check_layers(layers, formulas, inputs, ["batch:rows;classes:cols", "classes:cols+rows"])


def test_probabilities_of_zero() -> None:
    """What cannot be, and was predicted not to be, costs nothing; what is, and was predicted not to be, everything."""
    log_p, p = np.array([[0.0, -np.inf], [-np.inf, 0.0]]), np.array([[1.0, 0.0], [1.0, 0.0]])

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[Any]:
        loss = mtf.layers.kl_divergence(x, y, "c")
        return [loss, mtf.gradients([loss], [x])[0]]

    loss, gradient = interpret(program, {"x": ("n:2 c:2", log_p), "y": ("n:2 c:2", p)}, "rows:2", "c:rows").results
    np.testing.assert_array_equal(loss, [0.0, math.inf])
    np.testing.assert_array_equal(gradient, [[-1.0, 0.0], [-1.0, 0.0]])
