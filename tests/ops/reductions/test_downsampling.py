"""pool_tensor_1d, stride_tensor_1d, reduce_first."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import interpret, plan

RNG = np.random.default_rng(0)
INPUTS = {"x": ("b:4 length:24 d:6", RNG.normal(size=(4, 24, 6)))}


def test_values_and_gradients(agrees_on_many_meshes: Any) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.pool_tensor_1d(x, "length"),
            mtf.pool_tensor_1d(x, ("d", 6), mtf.reduce_max, 3),
            mtf.stride_tensor_1d(x, "length", 2),
            mtf.reduce_first(x, "length"),
        ]

    def reference(x: tf.Tensor) -> list[tf.Tensor]:
        maxima = tf.reduce_max(tf.reshape(x, [4, 24, 2, 3]), 3)
        return [(x[:, ::2] + x[:, 1::2]) / 2, maxima, x[:, ::2], x[:, 0]]

    agrees_on_many_meshes(program, reference, INPUTS, order=1)


def test_the_new_dimension_gets_a_name_of_its_own() -> None:
    x = np.arange(12)
    for taken in ([], ["_low"], ["_low", "_low_1"]):
        shape = " ".join([*(f"{name}:1" for name in taken), "length:12"])
        inputs = {"x": (shape, x.reshape([*(1 for _ in taken), 12]))}
        done = interpret(lambda x: mtf.stride_tensor_1d(x, "length", 2), inputs, "rows:2", "length:rows")
        np.testing.assert_array_equal(done.results.ravel(), x[::2])


def test_pooling_along_a_split_dimension_sends_nothing() -> None:
    specs = {"x": mtf.TensorSpec("length:16 d:2")}
    for program in (lambda x: mtf.pool_tensor_1d(x, "length"), lambda x: mtf.stride_tensor_1d(x, "length", 4)):
        assert not plan(program, specs, "rows:4", "length:rows").collectives


def test_errors_say_what_is_wrong() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    x = mtf.placeholder(mesh, "batch:4 length:8")
    for ours in (mtf.pool_tensor_1d, mtf.stride_tensor_1d):
        with pytest.raises(ShapeError, match=r'pool_size 3 does not divide dimension "length" of size 8'):
            ours(x, "length", pool_size=3)
        with pytest.raises(ShapeError, match=r"pool_size must be a whole number known now, not 2.5"):
            ours(x, "length", pool_size=2.5)
        with pytest.raises(ShapeError, match=r'did you mean "length"'):
            ours(x, "lenght")
    with pytest.raises(ShapeError, match=r'dimension "none" has size 0 and no first element'):
        mtf.reduce_first(mtf.placeholder(mesh, "none:0"), "none")
