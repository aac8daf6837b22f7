"""Running products and sums of logarithms, against TensorFlow and NumPy, with gradients, under layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.testing import interpret

X = np.random.default_rng(0).standard_normal((2, 4))


@pytest.mark.parametrize("reverse", [False, True])
def test_values_and_gradients(agrees: Any, reverse: bool) -> None:
    agrees(
        lambda x: [
            mtf.cumprod(x, "b", False, reverse), mtf.cumprod(x, "b", True, reverse),
            mtf.cumlogsumexp(x, "b", reverse=reverse),
        ],
        lambda x: [
            tf.math.cumprod(x, 1, False, reverse), tf.math.cumprod(x, 1, True, reverse),
            tf.math.log(tf.cumsum(tf.exp(x), 1, reverse=reverse)),
        ],
        {"x": ("a:2 b:4", X)}, ["b:rows"] if reverse else ["b:rows", "b:cols+rows"], order=1 if reverse else 2,
    )  # fmt: skip


def test_zeros_infinities_and_narrow_dtypes() -> None:
    """TensorFlow divides in the gradient, and so has NaN beside a zero."""
    x, y = np.array([2.0, 0.0, 3.0]), np.array([-np.inf, -np.inf, 5.0, 1000.0])

    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[Any]:
        product, total = mtf.cumprod(x, "n"), mtf.cumlogsumexp(y, "m")
        narrow = mtf.cumprod(mtf.fill(x.mesh, 1.01, "k:64", tf.bfloat16), "k")
        return [
            product, mtf.gradients([product], [x])[0], total, mtf.gradients([total], [y])[0],
            mtf.cumlogsumexp(y, "m", exclusive=True), mtf.to_float(narrow),
        ]  # fmt: skip

    found = interpret(program, {"x": ("n:3", x), "y": ("m:4", y)}, "rows:2", "n:rows", max_padding=0.5).results
    np.testing.assert_array_equal(found[0], [2.0, 0.0, 0.0])
    np.testing.assert_array_equal(found[1], [1.0, 2.0 + 2.0 * 3.0, 0.0])
    np.testing.assert_array_equal(found[2], [-np.inf, -np.inf, 5.0, 1000.0])
    assert np.isfinite(found[3]).all()
    np.testing.assert_array_equal(found[4], [-np.inf, -np.inf, -np.inf, 5.0])
    once = float(tf.cast(tf.constant(1.01, tf.bfloat16), tf.float64))
    np.testing.assert_allclose(found[5], once ** np.arange(1, 65), rtol=2.0**-8)


def test_bool_is_refused() -> None:
    with pytest.raises(DtypeError, match=r"a number is needed, not bool"):
        mtf.cumprod(mtf.ones(mtf.Mesh(mtf.Graph()), "n:2", tf.bool), "n")
