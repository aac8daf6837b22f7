"""Weights with a length of their own, and weights divided by their largest singular value, under layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import GraphError, ShapeError
from meshtf.testing import interpret

FILTER, D_IN, D_OUT = mtf.Dimension("filter", 2), mtf.Dimension("d_in", 4), mtf.Dimension("d_out", 6)
WEIGHTS = [FILTER, D_IN, D_OUT]


def test_weight_norm(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    def layers(w: mtf.Tensor) -> list[mtf.Tensor]:
        mtf.get_variable(w.mesh, "norm/scale", [D_OUT], initializer=np.arange(1.0, 7.0))
        return [mtf.layers.weight_norm(w, "d_out", name="norm"), mtf.layers.weight_norm(w, [D_IN, D_OUT], name="both")]

    def formulas(variables: dict[str, tf.Tensor], w: tf.Tensor) -> list[tf.Tensor]:
        lengths = [tf.sqrt(tf.reduce_sum(w**2, axes, keepdims=True)) for axes in ([0, 1], [0])]
        return [w / lengths[0] * variables["norm/scale"], w / lengths[1] * variables["both/scale"]]

    check_layers(layers, formulas, {"w": normal(WEIGHTS)}, ["d_in:rows;d_out:cols", "d_out:cols+rows"])


def test_spectral_norm(check_layers: Callable[..., Any], normal: Callable[..., Any]) -> None:
    """One step of power iteration, with the vectors as constants in the gradient."""

    def layers(w: mtf.Tensor) -> list[mtf.Tensor]:
        return [
            mtf.layers.spectral_norm(w, D_OUT, is_training=True, name="one"),
            mtf.layers.spectral_norm(w, D_OUT, is_training=False, name="two"),
        ]

    def formulas(variables: dict[str, tf.Tensor], w: tf.Tensor) -> list[tf.Tensor]:
        matrix, found = tf.reshape(w, [-1, 6]), []
        for name in ("one", "two"):
            u = tf.math.l2_normalize(tf.stop_gradient(variables[f"{name}/singular_vector"]))
            v = tf.math.l2_normalize(tf.linalg.matvec(tf.stop_gradient(matrix), u))
            if name == "one":
                u = tf.math.l2_normalize(tf.linalg.matvec(tf.stop_gradient(matrix), v, transpose_a=True))
            found.append(w / tf.tensordot(v, tf.linalg.matvec(matrix, u), 1))
        return found

    check_layers(layers, formulas, {"w": normal(WEIGHTS)}, ["d_in:rows;d_out:cols", "d_out:cols+rows"])


def test_many_steps_find_the_largest_singular_value() -> None:
    """Each step makes the error of the vector a hundredth."""
    w = np.diag([5.0, 0.5, 0.2, 0.1]) @ np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]

    def program(w: mtf.Tensor) -> mtf.Tensor:
        return mtf.layers.spectral_norm(w, mtf.Dimension("d_out", 4), True, power_iterations=8)

    done = interpret(program, {"w": ("d_in:4 d_out:4", w)}, "rows:2", "d_in:rows")
    np.testing.assert_allclose(done.results, w / 5.0, rtol=1e-12)
    first = np.linalg.svd(w)[2][0]
    np.testing.assert_allclose(np.abs(done.variables["spectral_norm/singular_vector"]), np.abs(first), rtol=1e-10)


def test_zeros_stay_zeros() -> None:
    def program(w: mtf.Tensor) -> list[Any]:
        y = mtf.layers.weight_norm(w, mtf.Dimension("d_out", 2))
        return [y, mtf.gradients([y], [w])[0]]

    y, gradient = interpret(program, {"w": ("d_in:2 d_out:2", np.zeros((2, 2), np.float32))}, "one:1").results
    np.testing.assert_array_equal(y, np.zeros((2, 2)))
    assert np.isfinite(gradient).all()


def test_what_is_refused(build: Callable[..., mtf.Graph]) -> None:
    with pytest.raises(ShapeError, match=r"\[d_out:6\] must have both output dimensions and input dimensions"):
        build(lambda w: mtf.layers.weight_norm(w, D_OUT), [D_OUT])
    with pytest.raises(GraphError, match=r"power_iterations must be at least 1, and is 0"):
        build(lambda w: mtf.layers.spectral_norm(w, D_OUT, True, power_iterations=0), WEIGHTS)
