"""NaN, infinities and tolerances, as NumPy has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.testing import interpret

X = np.array([1.0, np.nan, np.inf, -np.inf, 0.0, 100.0])
Y = np.array([1.0 + 9e-6, np.nan, np.inf, np.inf, 1e-9, 101.0])


@pytest.mark.parametrize("layout", ["", "n:rows"])
def test_as_in_numpy(layout: str) -> None:
    def program(x: mtf.Tensor, y: mtf.Tensor) -> list[Any]:
        z = mtf.nan_to_num(x, nan=2.0)
        return [
            mtf.is_nan(x), mtf.is_inf(x), z, mtf.nan_to_num(x, posinf=3.0, neginf=4.0), mtf.is_close(x, y),
            mtf.is_close(x, y, equal_nan=True), mtf.is_close(x, 100.5, 0.01), mtf.gradients([z], [x])[0],
        ]  # fmt: skip

    found = interpret(program, {"x": ("n:6", X), "y": ("n:6", Y)}, "rows:2", layout).results
    expected = [
        np.isnan(X), np.isinf(X), np.nan_to_num(X, nan=2.0), np.nan_to_num(X, posinf=3.0, neginf=4.0),
        np.isclose(X, Y), np.isclose(X, Y, equal_nan=True), np.isclose(X, 100.5, 0.01), np.isfinite(X),
    ]  # fmt: skip
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_other_dtypes() -> None:
    z = np.array([complex(np.nan, 0), complex(0, np.inf), 1j])
    found = interpret(
        lambda z, n: [mtf.is_nan(z), mtf.is_inf(z), mtf.is_close(z, 1j), mtf.is_nan(n), mtf.is_inf(n),
                      mtf.is_close(n, 1000001), mtf.nan_to_num(n)],
        {"z": ("n:3", z), "n": ("n:3", np.array([1000000, 1, 1000020], np.int32))}, "one:1",
    ).results  # fmt: skip
    expected = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0] * 3, [0] * 3, [1, 0, 0], [1000000, 1, 1000020]]
    np.testing.assert_array_equal(found, expected)
    half = interpret(
        lambda x: mtf.is_close(mtf.cast(x, tf.float16), 1.0, 1e-4), {"x": ("n:2", np.array([1.0, 1.001]))}, "one:1"
    )
    np.testing.assert_array_equal(half.results, [True, False])


def test_truth_values_are_refused() -> None:
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "n:2", tf.bool)
    for function in (mtf.is_nan, mtf.is_inf, mtf.nan_to_num, lambda x: mtf.is_close(x, x)):
        with pytest.raises(DtypeError, match=r"number is needed, not bool; convert with mtf\.cast"):
            function(x)
