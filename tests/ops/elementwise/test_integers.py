"""Integers of every kind: what TensorFlow has no kernels for is computed otherwise, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.testing import interpret

pytestmark = pytest.mark.quick

UNSIGNED = [tf.uint8, tf.uint16, tf.uint32, tf.uint64]
ARRAY = np.array([[0, 1, 2, 7], [100, 3, 0, 5]])

# Of an unsigned array; what is below 0 is NumPy's, modulo 2 to the number of bits.
FUNCTIONS: dict[str, tuple[Callable[[mtf.Tensor], mtf.Tensor], Callable[[np.ndarray], Any]]] = {
    "abs": (mtf.abs, np.abs),
    "sign": (mtf.sign, np.sign),
    "negative": (mtf.negative, np.negative),
    "3 - x": (lambda x: 3 - x, lambda x: np.full_like(x, 3) - x),
    "x - 3": (lambda x: x - 3, lambda x: x - np.full_like(x, 3)),
    "x + True": (lambda x: x + True, lambda x: x + np.ones_like(x)),
    "x - True": (lambda x: x - True, lambda x: x - np.ones_like(x)),
    "is_finite": (mtf.is_finite, np.isfinite),
}


@pytest.mark.parametrize("dtype", UNSIGNED, ids=lambda dtype: dtype.name)
def test_functions_of_unsigned_integers(dtype: tf.DType) -> None:
    array = ARRAY.astype(dtype.as_numpy_dtype)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [ours(x) for ours, _ in FUNCTIONS.values()]

    results = interpret(program, {"x": ("a:2 b:4", array)}, "rows:2;cols:2", "a:rows;b:cols").results
    for name, result, (_, numpys) in zip(FUNCTIONS, results, FUNCTIONS.values(), strict=True):
        np.testing.assert_array_equal(result, numpys(array), f"{name} of {dtype.name}")


def test_the_lowest_number_is_subtracted() -> None:
    x = np.array([-128, -1, 0, 127], np.int8)
    found = interpret(lambda x: x - (-128), {"x": ("a:4", x)}, "rows:2", "a:rows").results
    np.testing.assert_array_equal(found, x - np.int8(-128))


@pytest.mark.parametrize("dtype", UNSIGNED, ids=lambda dtype: dtype.name)
def test_a_scalar_that_the_dtype_lacks_is_not_subtracted(dtype: tf.DType) -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "a:2", dtype)
    with pytest.raises(DtypeError, match=f"scalar -1 is no {dtype.name}"):
        mtf.sub(x, -1)


@pytest.mark.parametrize("dtype", UNSIGNED, ids=lambda dtype: dtype.name)
def test_powers_of_unsigned_integers_are_refused(dtype: tf.DType) -> None:
    x = mtf.placeholder(mtf.Mesh(mtf.Graph()), "a:2", dtype)
    with pytest.raises(DtypeError, match=f"a number that may be negative is needed, not {dtype.name}; convert with"):
        mtf.pow(x, 2)


@pytest.mark.parametrize("dtype", [tf.int8, tf.int16, *UNSIGNED], ids=lambda dtype: dtype.name)
def test_convolutions_of_integers(dtype: tf.DType) -> None:
    """There are no matrix products of these; a sum that overflows is what it is modulo 2 to the number of bits."""
    image = np.arange(2 * 6).reshape(2, 6, 1).astype(dtype.as_numpy_dtype)
    kernel = np.array([100, 3, 50]).reshape(3, 1, 1).astype(dtype.as_numpy_dtype)
    inputs = {"x": ("batch:2 length:6 in:1", image), "w": ("taps:3 in:1 out:1", kernel)}
    (result,) = interpret(lambda x, w: [mtf.conv1d(x, w, padding="VALID")], inputs, "rows:2", "batch:rows").results
    expected = sum(image[:, k : k + 4] * kernel[k] for k in range(3))
    np.testing.assert_array_equal(result, expected)
