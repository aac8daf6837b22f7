"""Adaptive pooling against windows cut out one by one, with gradients, under layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import interpret

BATCH, HEIGHT, WIDTH = mtf.Dimension("batch", 2), mtf.Dimension("height", 8), mtf.Dimension("width", 6)
SIZES = {"height": 3, "width": 2}


def windows(x: tf.Tensor, axis: int, size: int, reduce: Callable[..., tf.Tensor]) -> tf.Tensor:
    n = x.shape[axis]
    ends = [(int(np.floor(i * n / size)), int(np.ceil((i + 1) * n / size))) for i in range(size)]
    return tf.stack([reduce(tf.gather(x, range(*pair), axis=axis), axis) for pair in ends], axis)


def test_means_and_maxima_of_windows(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.layers.adaptive_avg_pool(x, SIZES),
            mtf.layers.adaptive_max_pool(x - 9.0, SIZES),  # no padding is the largest
            mtf.layers.adaptive_avg_pool(x, {"width": mtf.Dimension("all", 1)}),
        ]

    def formulas(variables: Any, x: tf.Tensor) -> list[tf.Tensor]:
        means, maxima = (windows(windows(x, 1, 3, f), 2, 2, f) for f in (tf.reduce_mean, tf.reduce_max))
        return [means, maxima - 9.0, tf.reduce_mean(x, 2, keepdims=True)]

    inputs = {"x": normal([BATCH, HEIGHT, WIDTH])}
    check_layers(layers, formulas, inputs, ["batch:rows;height:cols", "height:rows;width:cols"])


def test_equal_maxima_share_the_gradient() -> None:
    """Each element counts once in its windows, also where windows are not equally long."""

    def program(x: mtf.Tensor) -> list[Any]:
        y = mtf.layers.adaptive_max_pool(x, {"n": 2})
        return [y, mtf.gradients([y], [x])[0]]

    y, gradient = interpret(program, {"x": ("n:3", [1.0, 1.0, 0.0])}, "one:1").results
    np.testing.assert_array_equal(y, [1.0, 1.0])
    np.testing.assert_array_equal(gradient, [0.5, 1.5, 0.0])


def test_means_of_narrow_images_are_taken_in_float32() -> None:
    """Sums of 512 in bfloat16 would not grow by 1 any more."""

    def program(x: mtf.Tensor) -> mtf.Tensor:
        pooled = mtf.layers.adaptive_avg_pool(mtf.to_bfloat16(x), {"n": 1})
        assert pooled.dtype == tf.bfloat16
        return mtf.to_float(pooled)

    assert interpret(program, {"x": ("n:1024", np.ones(1024, np.float32))}, "one:1").results == [1.0]


@pytest.mark.parametrize(("mesh", "layout"), [("all:1", ""), ("all:2", "n:all"), ("all:3", "n:all")])
@pytest.mark.parametrize(("name", "size"), [("m", 1), ("m", 3), ("m", 4), ("n", 4)])
def test_what_is_not_finite_stays_in_its_windows(name: str, size: int, mesh: str, layout: str) -> None:
    """In the images, and in the gradients."""
    x = np.array([1, 2, np.inf, 4, 5, 6, 7, np.nan], np.float32)
    weights = np.array([1, np.inf, 3, np.nan][:size], np.float32)
    ends = [(i * 8 // size, -(-(i + 1) * 8 // size)) for i in range(size)]

    def program(x: mtf.Tensor, weights: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.layers.adaptive_avg_pool(x, {"n": mtf.Dimension(name, size)})
        (gradient,) = mtf.gradients([y], [x], grad_ys=[weights])
        return [y, gradient]

    y, gradient = interpret(program, {"x": ("n:8", x), "weights": (f"{name}:{size}", weights)}, mesh, layout).results
    np.testing.assert_allclose(y, [x[begin:end].mean() for begin, end in ends], rtol=1e-6)
    wanted = np.zeros(8, np.float32)
    for (begin, end), weight in zip(ends, weights, strict=True):
        wanted[begin:end] += weight / (end - begin)
    np.testing.assert_allclose(gradient, wanted, rtol=1e-6)


def test_what_is_refused(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r"\[width:6\] cannot be pooled to size 7; give 1 to 6"):
        build(lambda x: mtf.layers.adaptive_avg_pool(x, {"width": 7}), [BATCH, WIDTH])
    with pytest.raises(ShapeError, match=r'no dimension "widht" .*did you mean "width"'):
        build(lambda x: mtf.layers.adaptive_max_pool(x, {"widht": 2}), [BATCH, WIDTH])
    with pytest.raises(DtypeError, match=r"a floating tensor is needed, not int32"):
        build(lambda x: mtf.layers.adaptive_avg_pool(x, {"width": 2}), [BATCH, WIDTH], tf.int32)
    with pytest.raises(ShapeError, match=r"size of dimension 'width' must be an integer, not 2\.0"):
        build(lambda x: mtf.layers.adaptive_max_pool(x, {"width": 2.0}), [BATCH, WIDTH])
