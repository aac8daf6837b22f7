"""Activations whose gradients have kernels of their own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.testing import interpret


def test_relu_of_what_is_averaged(agrees: Callable[..., None]) -> None:
    """The gradient of the mean is one number for a whole row, which the kernel would not spread by itself."""
    x = np.random.default_rng(0).normal(size=(4, 4))

    def averaged(x: mtf.Tensor) -> mtf.Tensor:
        return mtf.reduce_mean(mtf.relu(x), reduced_dim="b")

    agrees(averaged, lambda x: tf.reduce_mean(tf.nn.relu(x), axis=1), {"x": ("a:4 b:4", x)})


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, tf.bfloat16.as_numpy_dtype])
def test_exponential_units_are_precise_for_small_and_for_large_numbers(dtype: type) -> None:
    """TensorFlow's kernels subtract 1 from exp(x): in float32, elu(-1e-9) was 0, and its slope at -20 was 0."""
    x = np.array([-20.0, -9.0, -0.3, -2e-3, -1e-4, -1e-7, 0.0, 1e-7, 2.0], dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        ys = [mtf.elu(x), mtf.selu(x)]
        return [*ys, *(mtf.gradients([y], [x])[0] for y in ys)]

    wide = x.astype(np.float64)
    alpha, scale = 1.6732632423543772, 1.0507009873554805
    values = [np.where(wide > 0, wide, np.expm1(wide)), scale * np.where(wide > 0, wide, alpha * np.expm1(wide))]
    slopes = [np.where(wide >= 0, 1, np.exp(wide)), scale * np.where(wide >= 0, 1, alpha * np.exp(wide))]
    found = interpret(program, {"x": ("n:9", x)}, "rows:1").results
    for got, expected in zip(found, [*values, *slopes], strict=True):
        rounded = expected.astype(dtype).astype(np.float64)
        digits = 2.0**-7 if dtype not in (np.float32, np.float64) else 8 * np.finfo(dtype).eps
        np.testing.assert_allclose(
            got.astype(np.float64), rounded, rtol=digits, atol=1e-7 if dtype == np.float16 else 0
        )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, tf.bfloat16.as_numpy_dtype])
def test_exact_gelu_is_precise_far_below_zero(dtype: type) -> None:
    """1 + erf has no digits there: gelu(-3.2) was 0 in bfloat16, and gelu(-6) in float32."""
    x = np.array([-10.0, -6.0, -4.0, -3.2, -0.5, 0.0, 1.0, 10.0], dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.gelu(x, approximate=False)
        (first,) = mtf.gradients([y], [x])
        return [y, first, *mtf.gradients([first], [x])]

    wide = x.astype(np.float64)
    below = np.array([math.erfc(-number / math.sqrt(2)) / 2 for number in wide])
    density = np.exp(-(wide**2) / 2) / math.sqrt(2 * math.pi)
    found = interpret(program, {"x": ("n:8", x)}, "rows:1").results
    for got, expected in zip(found, [wide * below, below + wide * density, (2 - wide**2) * density], strict=True):
        rounded = expected.astype(dtype).astype(np.float64)
        digits = {np.float32: 1e-5, np.float64: 1e-13}.get(dtype, 2.0**-7)
        least = 1e-7 if dtype == np.float16 else 0.0
        np.testing.assert_allclose(got.astype(np.float64), rounded, rtol=digits, atol=least)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, tf.bfloat16.as_numpy_dtype])
def test_gradients_of_exact_gelu_at_infinities(dtype: type) -> None:
    x = np.array([-np.inf, -1e4, 1e4, np.inf], dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        (first,) = mtf.gradients([mtf.gelu(x, approximate=False)], [x])
        (second,) = mtf.gradients([first], [x])
        return [first, second, *mtf.gradients([second], [x])]

    found = interpret(program, {"x": ("n:4", x)}, "rows:2", "n:rows").results
    np.testing.assert_array_equal(found, np.array([[0, 0, 1, 1], [0] * 4, [0] * 4], dtype))
