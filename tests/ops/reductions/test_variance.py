"""Variances and standard deviations, as NumPy has them, with gradients, under layouts, and where digits are few."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError
from meshtf.testing import interpret

X = np.random.default_rng(0).standard_normal((4, 6))


def test_values_and_gradients(agrees: Any) -> None:
    def formulas(x: tf.Tensor) -> list[tf.Tensor]:
        var = tf.math.reduce_variance
        return [var(x), tf.transpose(var(x, 1)), var(x, 0) * 4 / 3, tf.sqrt(var(x, 0)), tf.sqrt(var(x) * 24 / 22)]

    agrees(
        lambda x: [
            mtf.reduce_variance(x),
            mtf.reduce_variance(x, "b"),
            mtf.reduce_variance(x, output_shape="b:6", ddof=1),
            mtf.reduce_std(x, reduced_dim="a"),
            mtf.reduce_std(x, ddof=2),
        ],
        formulas,
        {"x": ("a:4 b:6", X)},
        ["a:rows;b:cols", "b:cols+rows"],
    )


def test_a_large_mean_costs_no_digits() -> None:
    """mean(x²) - mean(x)² of float32 numbers near 10,000 would be off by about 8."""
    x = (1e4 + X).astype(np.float32)
    found = interpret(lambda x: mtf.reduce_variance(x), {"x": ("a:4 b:6", x)}, "rows:2", "a:rows").results
    np.testing.assert_allclose(found, np.var(x.astype(np.float64)), rtol=1e-6)


def test_float16_is_computed_in_float32() -> None:
    """Squares of 300 are beyond float16, and so is their mean; the deviation is not."""
    x = np.array([-300.0, 300.0], np.float32)
    found = interpret(lambda x: mtf.to_float(mtf.reduce_std(mtf.cast(x, tf.float16))), {"x": ("n:2", x)}, "one:1")
    assert found.results == 300.0


def test_equal_elements_have_a_gradient_of_zeros() -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        std = mtf.reduce_std(x, reduced_dim="n")
        return [std, mtf.gradients([std], [x])[0]]

    std, gradient = interpret(program, {"x": ("m:2 n:3", [[0.1] * 3, [1.0, 2.0, 3.0]])}, "one:1").results
    np.testing.assert_allclose(std, [0.0, np.sqrt(2 / 3)], rtol=1e-15)
    np.testing.assert_array_equal(gradient[0], [0.0] * 3)
    np.testing.assert_allclose(gradient[1], np.array([-1.0, 0.0, 1.0]) / (3 * std[1]), rtol=1e-14, atol=1e-16)


def test_what_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with pytest.raises(ShapeError, match=r"ddof must be a whole number known now, not 0\.5"):
        mtf.reduce_std(mtf.ones(mtf.Mesh(mtf.Graph()), "n:3"), ddof=0.5)  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match=r"of 1 elements of \[n:1\] with ddof 1 would divide by 0 or less"):
        mtf.reduce_variance(mtf.ones(mesh, "n:1"), ddof=1)
    with pytest.raises(DtypeError, match=r"real floating tensor is needed, not int32"):
        mtf.reduce_std(mtf.range(mesh, ("n", 2)))
    with pytest.raises(ShapeError, match=r'has no elements along "n", so there is no variance'):
        mtf.reduce_variance(mtf.ones(mesh, "n:0"))
