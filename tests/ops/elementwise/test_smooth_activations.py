"""Smooth activations against jax.nn in float32, and against TensorFlow in float64 with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, UsageError
from meshtf.testing import interpret

X = np.linspace(-4.0, 4.0, 24).reshape(4, 6)
LAYOUTS = ["a:rows;b:cols", "b:cols+rows"]


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [mtf.silu(x), mtf.mish(x), mtf.celu(x), mtf.celu(x, 0.5), mtf.soft_sign(x), mtf.log_sigmoid(x)],
        lambda x: [
            x * tf.sigmoid(x),
            x * tf.tanh(tf.math.softplus(x)),
            tf.nn.elu(x),
            tf.where(x > 0, x, 0.5 * tf.math.expm1(x / 0.5)),
            x / (1 + tf.abs(x)),
            tf.math.log_sigmoid(x),
        ],
        {"x": ("a:4 b:6", X)},
        LAYOUTS,
    )


def test_as_in_jax() -> None:
    nn = pytest.importorskip("jax.nn")
    x = X.astype(np.float32).ravel()
    ours = interpret(
        lambda x: [mtf.silu(x), mtf.mish(x), mtf.celu(x, 2.0), mtf.soft_sign(x), mtf.log_sigmoid(x)],
        {"x": ("n:24", x)},
        "one:1",
    ).results
    theirs = [nn.silu(x), nn.mish(x), nn.celu(x, 2.0), nn.soft_sign(x), nn.log_sigmoid(x)]
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # a few roundings of float32


def test_silu_is_swish() -> None:
    """The two names build the same operation."""
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "n:2")
    assert [f(x).operation.name.rstrip("_0123456789") for f in (mtf.silu, mtf.swish)] == ["swish", "swish"]


def test_far_from_zero() -> None:
    x = np.array([-1000.0, 1000.0])

    def program(x: mtf.Tensor) -> list[Any]:
        ys = [mtf.celu(x), mtf.log_sigmoid(x), mtf.soft_sign(x)]
        return [*ys, *(mtf.gradients([y], [x])[0] for y in ys)]

    found = interpret(program, {"x": ("n:2", x)}, "one:1").results
    near = 1000 / 1001
    expected = [[-1, 1000], [-1000, 0], [-near, near], [0, 1], [1, 0], [1 / 1001**2] * 2]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.float16, tf.bfloat16], ids=lambda d: d.name)
def test_gradients_of_mish_at_infinities(dtype: tf.DType) -> None:
    """They are 0 and 1, of the second order 0. A product of the slopes of its factors would be NaN."""
    x = np.array([-np.inf, -2000.0, 2000.0, np.inf])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        x = mtf.cast(x, dtype)
        (dx,) = mtf.gradients([mtf.mish(x)], [x])
        return [mtf.to_float(dx), mtf.to_float(mtf.gradients([dx], [x])[0])]

    first, second = interpret(program, {"x": ("n:4", x)}, "rows:2", "n:rows").results
    np.testing.assert_array_equal(first, [0, 0, 1, 1])
    np.testing.assert_array_equal(second, 0)


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_mish_of_narrow_dtypes_rounds_once(dtype: tf.DType) -> None:
    x = X.astype(dtype.as_numpy_dtype).ravel()
    found = interpret(lambda x: mtf.to_float(mtf.mish(x)), {"x": ("n:24", x)}, "one:1").results
    wide = x.astype(np.float64)
    expected = (wide * np.tanh(np.log1p(np.exp(wide)))).astype(dtype.as_numpy_dtype).astype(np.float32)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, tf.bfloat16.as_numpy_dtype])
def test_the_slope_of_soft_sign_is_precise_far_from_zero(dtype: type) -> None:
    """As the slope of a quotient it is a difference of two numbers, near 1 / x: at 482 it was 1.5e-5 in bfloat16."""
    x = np.array([-482.0, -98.0, -1.0, 0.0, 0.5, 30.0, 482.0], dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        y = mtf.soft_sign(x)
        return [y, *mtf.gradients([y], [x])]

    wide = x.astype(np.float64)
    found = interpret(program, {"x": ("n:7", x)}, "one:1").results
    np.testing.assert_array_equal(found[0], (wide / (1 + abs(wide))).astype(dtype))
    digits, least = (2.0**-6, 1e-7) if dtype != np.float32 else (1e-6, 0.0)
    np.testing.assert_allclose(found[1].astype(np.float64), 1 / (1 + abs(wide)) ** 2, rtol=digits, atol=least)


def test_what_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with pytest.raises(UsageError, match=r"alpha must not be 0; .* mtf\.relu"):
        mtf.celu(mtf.ones(mesh, "n:2"), 0.0)
    with pytest.raises(DtypeError, match=r"a real floating tensor is needed, not int32"):
        mtf.soft_sign(mtf.range(mesh, ("n", 2)))


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_softplus_of_narrow_dtypes_rounds_once(dtype: tf.DType) -> None:
    """TensorFlow's own is x from 3 on in bfloat16, where the result is 3.0486 and the next numbers are 1/64 apart."""
    x = np.array([-8.0, -3.0, 0.0, 3.0, 4.0], np.float32)
    found = interpret(lambda x: mtf.to_float(mtf.softplus(mtf.cast(x, dtype))), {"x": ("n:5", x)}, "one:1").results
    np.testing.assert_array_equal(found, np.log1p(np.exp(x)).astype(dtype.as_numpy_dtype).astype(np.float32))
