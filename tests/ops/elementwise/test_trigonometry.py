"""Tangents, inverse and hyperbolic functions, against TensorFlow in float64, and at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.testing import interpret

RNG = np.random.default_rng(0)
X, Y = RNG.uniform(0.1, 0.9, (4, 6)), RNG.uniform(-0.9, -0.1, 6)
LAYOUTS = ["a:rows;b:cols", "b:cols+rows"]
NAMES = ["tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "atanh"]


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [*(getattr(mtf, name)(x) for name in NAMES), mtf.acosh(1.0 / x)],
        lambda x: [*(getattr(tf.math, name)(x) for name in NAMES), tf.math.acosh(1.0 / x)],
        {"x": ("a:4 b:6", X)},
        LAYOUTS,
    )


def test_functions_of_two(agrees: Any) -> None:
    agrees(
        lambda x, y: [mtf.atan2(y, x, x.shape), mtf.atan2(x, 0.5), mtf.hypot(x, y), mtf.hypot(2.0, y)],
        lambda x, y: [
            tf.atan2(tf.broadcast_to(y, x.shape), x),
            tf.atan2(x, tf.constant(0.5, tf.float64)),
            tf.sqrt(x**2 + y**2),
            tf.sqrt(4.0 + y**2),
        ],
        {"x": ("a:4 b:6", X), "y": ("b:6", Y)},
        LAYOUTS,
    )


def test_at_their_edges() -> None:
    """Lengths neither overflow nor vanish; (0, 0) has an angle but no gradient; infinite sides are infinite."""
    x1 = np.array([0.0, 3e200, 3e-200, -np.inf, np.nan, np.nan, -3.0])
    x2 = np.array([0.0, 4e200, 4e-200, 1.0, -np.inf, 1.0, 0.0])

    def program(x1: mtf.Tensor, x2: mtf.Tensor) -> list[Any]:
        length, angle = mtf.hypot(x1, x2), mtf.atan2(x1, x2)
        return [length, angle, *mtf.gradients([length], [x1, x2]), *mtf.gradients([angle], [x1, x2])]

    length, angle, *slopes = interpret(program, {"x1": ("n:7", x1), "x2": ("n:7", x2)}, "one:1").results
    np.testing.assert_allclose(length, [0.0, 5e200, 5e-200, np.inf, np.inf, np.nan, 3.0], rtol=1e-15)
    np.testing.assert_allclose(angle, np.arctan2(x1, x2), rtol=1e-15)
    for slope, beside in zip(slopes, (0.6, 0.8, 0.8 / 5e200, -0.6 / 5e200), strict=True):
        assert slope[0] == 0.0
        np.testing.assert_allclose(slope[1], beside, rtol=1e-14)
    outside = interpret(lambda x: [mtf.asin(x), mtf.acosh(x * 0.25)], {"x": ("n:2", [2.0, -2.0])}, "one:1").results
    assert np.isnan(outside).all()


def test_xla_keeps_a_nan_of_either_side() -> None:
    """Its maximum on a CPU keeps only that of the first."""
    x1, x2 = tf.constant([1.0, np.nan, np.inf, 3.0]), tf.constant([np.nan, 1.0, np.nan, 4.0])
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "n:4", name="x")
    operation = mtf.hypot(x, x).operation
    assert isinstance(operation, ElementwiseOperation)
    kernel = operation.kernel
    compiled = tf.function(lambda x1, x2: kernel(x1, x2), jit_compile=True, autograph=False)
    for sides in ((x1, x2), (x2, x1)):
        np.testing.assert_array_equal(compiled(*sides), [np.nan, np.nan, np.inf, 5.0])


def test_narrow_dtypes_round_once() -> None:
    """In bfloat16, the squares of hypot alone would be off by a part of 256 each."""
    x = np.array([0.3, 0.55, 0.9], np.float32)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        narrow = mtf.to_bfloat16(x)
        functions = [*(getattr(mtf, name) for name in NAMES), lambda v: mtf.hypot(v, 0.7)]
        return [mtf.to_float(narrow), *(mtf.to_float(f(narrow)) for f in functions)]

    rounded, *found = interpret(program, {"x": ("n:3", x)}, "one:1").results
    wide = tf.constant(rounded, tf.float64)
    side = float(tf.cast(tf.constant(0.7, tf.bfloat16), tf.float64))
    for ours, exact in zip(
        found, [*(getattr(tf.math, n)(wide) for n in NAMES), tf.sqrt(wide**2 + side**2)], strict=True
    ):
        np.testing.assert_allclose(ours, exact, rtol=2.0**-8)
