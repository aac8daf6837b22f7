"""The inverse of erf, and the gamma function's logarithm, against TensorFlow in float64, and what is known of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
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
