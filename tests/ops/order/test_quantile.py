"""Quantiles as NumPy has them, with gradients, under layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError, UsageError
from meshtf.testing import interpret

X = np.random.default_rng(0).standard_normal((5, 8))


def test_values_and_gradients(agrees: Any) -> None:
    def formulas(x: tf.Tensor) -> list[tf.Tensor]:
        rows, columns = tf.sort(x, axis=1), tf.sort(x, axis=0)
        return [rows[:, 2] * 0.9 + rows[:, 3] * 0.1, columns[2], (rows[:, 3] + rows[:, 4]) / 2, rows[:, 7]]

    agrees(
        lambda x: [mtf.quantile(x, 0.3, "b"), mtf.median(x, "a"), mtf.median(x, "b"), mtf.quantile(x, 1.0, "b")],
        formulas,
        {"x": ("a:5 b:8", X)},
        ["b:rows", "b:cols+rows"],
    )


def test_as_in_numpy() -> None:
    shares = (0.0, 0.25, 0.5, 0.91, 1.0)
    found = interpret(lambda x: [mtf.quantile(x, q, "b") for q in shares], {"x": ("a:5 b:8", X)}, "one:1").results
    np.testing.assert_allclose(found, np.quantile(X, shares, axis=1), rtol=1e-14)


def test_infinities_and_narrow_dtypes() -> None:
    x = np.array([-np.inf, 1.0, np.inf], np.float32)
    narrow = interpret(
        lambda x: [mtf.median(x, "n"), mtf.to_float(mtf.quantile(mtf.to_bfloat16(x), 0.5, "n"))],
        {"x": ("n:3", x)}, "one:1",
    ).results  # fmt: skip
    assert narrow == [1.0, 1.0]


def test_what_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with pytest.raises(UsageError, match=r"q must be from 0 to 1, not '0\.5'"):
        mtf.quantile(mtf.ones(mtf.Mesh(mtf.Graph()), "n:3"), "0.5", "n")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"q must be from 0 to 1, not 50; divide a percentage by 100"):
        mtf.quantile(mtf.ones(mesh, "n:2"), 50, "n")
    with pytest.raises(DtypeError, match=r"real floating tensor is needed, not int32"):
        mtf.median(mtf.range(mesh, ("n", 2)), "n")
    with pytest.raises(ShapeError, match=r'"n" has size 0 and no quantiles'):
        mtf.median(mtf.ones(mesh, "n:0"), "n")
