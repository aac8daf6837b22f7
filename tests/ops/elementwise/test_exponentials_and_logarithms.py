"""Other bases than e, and sums of logarithms, against TensorFlow in float64, and at their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret

RNG = np.random.default_rng(0)


def test_values_and_gradients(agrees: Any) -> None:
    def formulas(x: tf.Tensor, y: tf.Tensor) -> list[tf.Tensor]:
        ln2, ln10 = np.log(2.0), np.log(10.0)
        both = tf.reduce_logsumexp(tf.stack([x, tf.broadcast_to(y, x.shape)]), 0)
        return [tf.exp(x * ln2), tf.math.log(x) / ln2, tf.math.log(x) / ln10, both]

    agrees(
        lambda x, y: [mtf.exp2(x), mtf.log2(x), mtf.log10(x), mtf.logaddexp(x, y)],
        formulas,
        {"x": ("a:4 b:6", RNG.uniform(0.3, 3.0, (4, 6))), "y": ("b:6", RNG.standard_normal(6))},
        ["a:rows;b:cols", "b:cols+rows"],
    )


def test_logaddexp_of_infinities_and_equals() -> None:
    x = np.array([-np.inf, -np.inf, np.inf, np.inf, 800.0, 0.0, np.nan])
    y = np.array([-np.inf, 1.0, np.inf, -np.inf, 800.0, -800.0, 1.0])

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[Any]:
        z = mtf.logaddexp(x, y)
        return [z, *mtf.gradients([z], [x, y])]

    z, dx, dy = interpret(program, {"x": ("n:7", x), "y": ("n:7", y)}, "one:1").results
    expected = [-np.inf, 1.0, np.inf, np.inf, 800.0 + np.log(2.0), 0.0, np.nan]
    np.testing.assert_allclose(z, expected, rtol=1e-15)
    np.testing.assert_array_equal(dx[:6], [0.5, 0.0, 0.5, 1.0, 0.5, 1.0])
    np.testing.assert_array_equal(dy[:6], [0.5, 1.0, 0.5, 0.0, 0.5, 0.0])


def test_logaddexp_of_equals_has_its_second_derivative() -> None:
    """By x twice it is s (1 - s), with s the sigmoid of x - y: 1/4 for equals."""

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[Any]:
        (first,) = mtf.gradients([mtf.logaddexp(x, y)], [x])
        return mtf.gradients([first], [x, y])

    xx, xy = interpret(program, {"x": ("n:2", [0.7, -np.inf]), "y": ("n:2", [0.7, -np.inf])}, "one:1").results
    np.testing.assert_allclose(xx, [0.25, 0.0], rtol=1e-12)
    np.testing.assert_allclose(xy, [-0.25, 0.0], rtol=1e-12)


def test_whole_powers_of_two_are_exact() -> None:
    numbers = np.arange(-100, 100, dtype=np.float32)
    found = interpret(lambda x: mtf.exp2(x), {"x": ("n:200", numbers)}, "one:1").results
    np.testing.assert_array_equal(found, np.exp2(numbers))


def test_narrow_dtypes_round_once() -> None:
    """log2(257 / 256) in bfloat16 would be the quotient of two rounded numbers."""
    x = np.array([1.5, 3.0, 40.0, 5000.0], np.float32)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        narrow = mtf.cast(x, tf.float16)
        return [mtf.to_float(f(narrow)) for f in (mtf.log2, mtf.log10, lambda v: mtf.logaddexp(v, v))]

    found = interpret(program, {"x": ("n:4", x)}, "one:1").results
    for ours, exact in zip(found, [np.log2(x), np.log10(x), x + np.log(2.0)], strict=True):
        np.testing.assert_allclose(ours, exact, rtol=2.0**-11)
