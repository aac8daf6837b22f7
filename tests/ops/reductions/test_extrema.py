"""The sign of a zero that is largest or smallest: 0 and -0 are equal, and a layout must not choose between them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.order.top_k import best_of
from meshtf.planning.local_work.extrema import maximum
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

ROWS, COLUMNS = mtf.Dimension("rows", 2), mtf.Dimension("columns", 38)  # slices of 38 and 19: vectors, and a rest
LAYOUTS = ["", "columns:cores", "rows:cores"]


def all_extrema(x: mtf.Tensor) -> list[mtf.Tensor]:
    y = mtf.negative(x)
    top = mtf.top_k(x, COLUMNS, ("k", 2))
    return [
        mtf.maximum(x, y), mtf.minimum(x, y), mtf.maximum(y, x), mtf.clip_by_value(x, 0.0, 1.0),
        mtf.reduce_max(x, reduced_dim=COLUMNS), mtf.reduce_min(x, reduced_dim=COLUMNS), mtf.reduce_max(x),
        mtf.top_1(x, COLUMNS)[0], mtf.top_k(x, COLUMNS, ("k", 1))[0], top[0],
        mtf.nth_smallest_element(x, 1, COLUMNS), mtf.cummax(x, COLUMNS), mtf.cummax(x, COLUMNS, reverse=True),
        mtf.max_pool(x, {"columns": 3}, strides=1, padding="SAME"),
        mtf.argmax(x, COLUMNS), top[1], mtf.argsort(x, COLUMNS),
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16], ids=lambda dtype: dtype.name)
def test_of_zeros_the_extremum_is_0_under_every_layout(dtype: tf.DType) -> None:
    signs = np.random.default_rng(0).integers(0, 2, (2, 38))
    x = np.where(signs == 1, -0.0, 0.0).astype(dtype.as_numpy_dtype)  # TensorFlow keeps one scalar for both zeros
    assert np.any(np.signbit(x.astype(np.float64)))
    for layout in LAYOUTS:
        for number, result in enumerate(interpret(all_extrema, {"x": ([ROWS, COLUMNS], x)}, "cores:2", layout).results):
            if np.issubdtype(result.dtype, np.integer):  # the places of equals, in order
                expected = np.arange(38)[: result.shape[1]] if result.ndim == 2 else 0
                np.testing.assert_array_equal(result, np.broadcast_to(expected, result.shape))
            else:
                assert not np.any(np.signbit(result.astype(np.float64))), f"result {number} under {layout!r}"


def test_xla_says_the_same() -> None:
    """By itself it puts -0 before 0, and takes x + 0 for x."""
    x = tf.constant([0.0, -0.0, 0.0])
    found = tf.function(lambda x: [maximum(-x, x), *best_of(True)(x, 3)], jit_compile=True)(x)
    assert not any(np.signbit(y).any() for y in found)
    np.testing.assert_array_equal(found[2], [0, 1, 2])


def test_a_nan_is_the_maximum_and_the_minimum() -> None:
    """Under every layout; nothing is made of it that hides it."""
    x = np.zeros((2, 38), np.float32)
    x[1, 30] = np.nan

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        extrema = [mtf.reduce_max(x, reduced_dim=COLUMNS), mtf.reduce_min(x, reduced_dim=COLUMNS)]
        return [*extrema, mtf.maximum(x, 1.0), mtf.minimum(1.0, x)]

    for layout in LAYOUTS:
        found = interpret(program, {"x": ([ROWS, COLUMNS], x)}, "cores:2", layout).results
        assert [np.isnan(y).sum() for y in found] == [1, 1, 1, 1]


def test_the_gradient_of_an_extremum_that_is_nan() -> None:
    """It is NaN, and 0 where the extremum is not used."""
    x = np.array([[1.0, np.nan, 2.0], [1.0, 3.0, 3.0]], np.float32)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        ys = [f(x, reduced_dim="columns") for f in (mtf.reduce_max, mtf.reduce_min)]
        used = [mtf.reduce_sum(y) for y in (*ys, *(mtf.where(mtf.is_nan(y), 0.0, y) for y in ys))]
        return [mtf.gradients([y], [x])[0] for y in used]

    for layout in LAYOUTS:
        found = interpret(program, {"x": ("rows:2 columns:3", x)}, "cores:2", layout, max_padding=1.0).results
        for grad, first, second in zip(found, [np.nan, np.nan, 0.0, 0.0], [[0, 0.5, 0.5], [1, 0, 0]] * 2, strict=True):
            np.testing.assert_array_equal(grad, [[first] * 3, second])


@pytest.mark.parametrize("layout", ["", "n:cores"])
def test_more_equals_than_float16_can_count_share_the_gradient(layout: str) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.gradients([1024.0 * extremum(x)], [x])[0] for extremum in (mtf.reduce_max, mtf.reduce_min)]

    found = interpret(program, {"x": ("n:65536", np.zeros(65536, np.float16))}, "cores:2", layout).results
    np.testing.assert_array_equal(found, np.full([2, 65536], 2.0**-6))
