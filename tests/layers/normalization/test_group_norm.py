"""Group and instance normalization against Keras and formulas, with gradients, under layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import interpret, plan
from tests.house.keras_module import keras

BATCH, HEIGHT, WIDTH = mtf.Dimension("batch", 4), mtf.Dimension("height", 2), mtf.Dimension("width", 4)
CHANNELS = mtf.Dimension("channels", 4)
IMAGE = [BATCH, HEIGHT, WIDTH, CHANNELS]
LAYOUTS = ["batch:rows;channels:cols", "channels:cols+rows", "height:rows;width:cols"]
EPSILON = 1e-3


def uneven(mesh: mtf.Mesh, name: str) -> None:
    """Makes a variable before its layer does, so that it starts neither at 0 nor at 1."""
    mtf.get_variable(mesh, name, [CHANNELS], initializer=np.array([0.5, 1.0, 1.5, -2.0]))


def test_groups_and_instances(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        for name in ("groups/scale", "groups/bias", "instance/scale"):
            uneven(x.mesh, name)
        return [
            mtf.layers.group_norm(x, 2, epsilon=EPSILON, name="groups"),
            mtf.layers.group_norm(x, 1, [HEIGHT, WIDTH], EPSILON, use_scale=False, use_bias=False),
            mtf.layers.instance_norm(x, epsilon=EPSILON, use_bias=False, name="instance"),
            mtf.layers.instance_norm(x, "width", EPSILON, use_bias=False, use_scale=False),
        ]

    def formulas(variables: dict[str, tf.Tensor], x: tf.Tensor) -> list[tf.Tensor]:
        def of_groups(count: int, *axes: int) -> tf.Tensor:
            grouped = tf.reshape(x, [4, 2, 4, count, -1])
            mean, variance = tf.nn.moments(grouped, [*axes, 4], keepdims=True)
            return tf.reshape((grouped - mean) / tf.sqrt(variance + EPSILON), x.shape)

        return [
            of_groups(2, 1, 2) * variables["groups/scale"] + variables["groups/bias"],
            of_groups(1, 1, 2),
            of_groups(4, 1, 2) * variables["instance/scale"],
            of_groups(4, 2),
        ]

    check_layers(layers, formulas, {"x": normal(IMAGE)}, LAYOUTS)


def test_as_in_keras(normal: Callable[..., Any]) -> None:
    shape, x = normal(IMAGE)
    expected = keras().layers.GroupNormalization(2, epsilon=EPSILON)(x)
    found = interpret(lambda x: mtf.layers.group_norm(x, 2, epsilon=EPSILON), {"x": (shape, x)}, "one:1").results
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)  # Keras subtracts squares


def test_an_image_stays_where_it_is() -> None:
    """Of channels over 4 cores in 2 groups, only numbers for every channel are sent."""
    spec = {"x": mtf.TensorSpec("batch:2 height:32 width:32 channels:8")}
    planned = plan(lambda x: mtf.layers.group_norm(x, 2), spec, "rows:4", "channels:rows")
    assert planned.collectives
    assert max(np.prod(c.input.slice_shape) for c in planned.collectives) <= 2 * 8


def test_what_is_refused(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r"3 groups do not divide the channels \[channels:4\]"):
        build(lambda x: mtf.layers.group_norm(x, 3), IMAGE)
    with pytest.raises(ShapeError, match=r"\[batch:4 channels:4\] has no spatial dimensions .*mtf\.layers\.layer_norm"):
        build(lambda x: mtf.layers.instance_norm(x), [BATCH, CHANNELS])
    with pytest.raises(ShapeError, match=r'"channels" is given as a spatial dimension and as channels'):
        build(lambda x: mtf.layers.instance_norm(x, CHANNELS), IMAGE)
    with pytest.raises(DtypeError, match=r"statistics need floating numbers, and x is int32"):
        build(lambda x: mtf.layers.group_norm(x, 2), IMAGE, tf.int32)
