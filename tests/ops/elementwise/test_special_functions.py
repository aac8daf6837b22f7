"""The inverse of erf, and the gamma function's logarithm, against TensorFlow in float64, and what is known of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [mtf.erfinv(x), mtf.lgamma(x), mtf.digamma(x)],
        lambda x: [tf.math.erfinv(x), tf.math.lgamma(x), tf.math.digamma(x)],
        {"x": ("a:4 b:6", np.random.default_rng(0).uniform(0.2, 0.9, (4, 6)))},
        ["a:rows;b:cols", "b:cols+rows"],
    )


def test_known_values() -> None:
    """The derivative of digamma at 1 is π²/6 (the sum of 1/n²), and its own is -2 ζ(3)."""
    ones = np.ones(2)

    def program(x: mtf.Tensor) -> list[Any]:
        slope = mtf.gradients([mtf.digamma(x)], [x])[0]
        return [mtf.digamma(x), slope, mtf.gradients([slope], [x])[0], mtf.lgamma(4.0 + x), mtf.erfinv(x)]

    found = [y[0] for y in interpret(program, {"x": ("n:2", ones)}, "one:1").results]
    expected = [-0.5772156649015329, math.pi**2 / 6, -2 * 1.2020569031595942, math.log(24.0), math.inf]
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_narrow_dtypes() -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        narrow = mtf.to_bfloat16(x)
        slope = mtf.gradients([mtf.digamma(narrow)], [narrow])[0]
        return [mtf.to_float(y) for y in (mtf.erfinv(narrow), mtf.lgamma(narrow), mtf.digamma(narrow), slope)]

    found = interpret(program, {"x": ("n:2", np.array([0.5, 0.75], np.float32))}, "one:1").results
    x = tf.constant([0.5, 0.75], tf.float64)
    exact = [tf.math.erfinv(x), tf.math.lgamma(x), tf.math.digamma(x), tf.math.polygamma(tf.ones([], x.dtype), x)]
    for ours, wide in zip(found, exact, strict=True):
        np.testing.assert_allclose(ours, wide, rtol=2.0**-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_erfinv_of_small_numbers(dtype: type) -> None:
    """TensorFlow takes it from (x + 1) / 2: in float32, erfinv(1e-8) was 0."""
    x = np.array([-1e-30, 1e-12, 1e-8, -1e-3, 0.1, -0.2499, 0.2501, 0.9], dtype)
    found = interpret(lambda x: [mtf.erfinv(x), mtf.erf(mtf.erfinv(x))], {"x": ("n:8", x)}, "one:1").results
    digits = 4 * np.finfo(dtype).eps
    np.testing.assert_allclose(found[0][:3], (math.sqrt(math.pi) / 2 * x.astype(np.float64))[:3], rtol=3e-7)
    np.testing.assert_allclose(found[1], x, rtol=digits)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_derivatives_of_digamma_at_negative_numbers(dtype: type) -> None:
    """TensorFlow's are right down to about -8: in float32 the derivative at -8.62 was -4e15, and not 11.4.

    The derivative of order n at x is that at x + 1 plus n! (-1 / x)^(n + 1), with the opposite sign for an even n.
    """
    x = np.array([-0.3, -1.5, -4.25, -8.625, -9.875, -33.3], dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        (first,) = mtf.gradients([mtf.digamma(x)], [x])
        (second,) = mtf.gradients([first], [x])
        return [first, second, *mtf.gradients([second], [x])]

    found = interpret(program, {"x": ("n:6", x)}, "one:1").results
    far = x.astype(np.float64) + 64
    for n, got in enumerate(found, start=1):
        sign = -1 if n % 2 == 0 else 1
        steps = sum(math.factorial(n) / (x.astype(np.float64) + k) ** (n + 1) for k in range(64))
        expected = tf.math.polygamma(tf.cast(n, tf.float64), far).numpy() + sign * steps
        np.testing.assert_allclose(got, expected, rtol=2e-4 if dtype == np.float32 else 1e-11)
