"""Reports of other systems about NaN within maxima and minima, compiled and not."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from tests.built_program import BuiltProgram

pytestmark = pytest.mark.quick

NAN = np.nan
X = np.array([[1, NAN, 3, 4, 5, 6], [NAN, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, NAN], [1, 2, 3, 4, 5, 6]], np.float32)
Y = X[::-1].copy()
SPECS = {"x": "n:4 m:6", "y": "n:4 m:6"}


def extrema(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
    return [
        mtf.reduce_max(x, reduced_dim="m"),
        mtf.reduce_min(x, reduced_dim="n"),
        mtf.reduce_max(x),
        mtf.maximum(x, y),
        mtf.maximum(y, x),
        mtf.minimum(x, y),
        mtf.minimum(y, x),
        mtf.maximum(x, 2.0),
        mtf.minimum(2.0, x),
        mtf.maximum(x, NAN),
        mtf.clip_by_value(x, 2.0, 4.0),
        mtf.clip_by_value(x, 2.0, y),
        mtf.clip_by_value(mtf.zeros_like(x), y, 4.0),
        mtf.relu(x),
        mtf.cummax(x, "m"),
        mtf.cummax(x, "m", reverse=True),
        mtf.max_pool(x, {"m": 2}),
    ]


def expected(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
    both = [np.maximum(x, y), np.maximum(y, x), np.minimum(x, y), np.minimum(y, x)]
    return [
        np.max(x, 1),
        np.min(x, 0),
        np.max(x),
        *both,
        np.maximum(x, 2),
        np.minimum(2, x),
        np.full_like(x, NAN),
        np.clip(x, 2, 4),
        np.minimum(np.maximum(x, 2), y),
        np.minimum(y, 4),
        np.maximum(x, 0),
        np.maximum.accumulate(x, 1),
        np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1],
        np.max(x.reshape(4, 3, 2), 2),
    ]


@pytest.mark.parametrize("layout", ["", "n:rows", "m:rows", "n:rows;m:cols"])
def test_extrema_keep_nan_wherever_they_are_computed(layout: str) -> None:
    """jax-ml/jax#1072, pytorch/pytorch#76795, pytorch/pytorch#7645, ml-explore/mlx#4072: a limit, a rank lost it."""
    inputs = {"x": (SPECS["x"], X), "y": (SPECS["y"], Y)}
    for found, right in zip(
        BuiltProgram(extrema, inputs).interpret("rows:2;cols:3", layout).results, expected(X, Y), strict=True
    ):
        np.testing.assert_array_equal(found, right)


def test_gradients_of_an_extremum_of_nan_are_nan() -> None:
    """tensorflow/tensorflow#118673: no element equals a NaN, so the gradient was 0, and the weights stood still."""

    def program(x: mtf.Tensor) -> mtf.Tensor | None:
        return mtf.gradients(mtf.reduce_max(x, reduced_dim="m"), [x])[0]

    found = BuiltProgram(program, {"x": (SPECS["x"], X)}).interpret("rows:2", "m:rows").results
    np.testing.assert_array_equal(found, np.concatenate([np.full([3, 6], NAN), [[0, 0, 0, 0, 0, 1]]]))


@pytest.mark.parametrize("dtype", [tf.float32, tf.float16, tf.bfloat16, tf.float64])
def test_a_compiled_loop_keeps_nan_as_the_rest_does(dtype: tf.DType) -> None:
    """tensorflow/tensorflow#116992, openxla/xla#21461: XLA for CPUs gave the largest of what is a number."""

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[mtf.Tensor]:
        x, y = mtf.cast(x, dtype), mtf.cast(y, dtype)

        def body(i: mtf.Tensor, *results: mtf.Tensor) -> list[mtf.Tensor]:
            return [i + 1, *extrema(x + mtf.cast(i * 0, dtype), y)]

        start = [mtf.constant(x.mesh, 0, dtype=tf.int32), *(mtf.zeros_like(y) for y in extrema(x, y))]
        found = mtf.while_loop(lambda i, *_: mtf.less(i, 2), body, start, maximum_iterations=2, compiled=True)
        return [mtf.cast(y, tf.float32) for y in found[1:]]

    inputs = {name: mtf.TensorSpec(shape) for name, shape in SPECS.items()}
    step = mtf.function(program, mtf.SpmdMeshImpl("all:1", ""), inputs=inputs)
    for found, right in zip(step(x=X, y=Y), expected(X, Y), strict=True):
        np.testing.assert_array_equal(found, right)
