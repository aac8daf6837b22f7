"""Triangles and identity matrices, as NumPy has them, under layouts and with gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError
from meshtf.testing import interpret

X = np.random.default_rng(0).standard_normal((3, 4, 6))


def test_triangles_and_their_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [mtf.tril(x, "r", "c"), mtf.triu(x, "r", "c", 1), mtf.tril(x, "c", "r", -2)],
        lambda x: [
            tf.linalg.band_part(x, -1, 0),
            x - tf.linalg.band_part(x, -1, 0),
            x - tf.linalg.band_part(x, -1, 1),
        ],
        {"x": ("b:3 r:4 c:6", X)},
        ["r:rows;c:cols", "c:cols+rows"],
    )


@pytest.mark.parametrize("layout", ["", "r:rows;c:cols"])
def test_as_in_numpy(layout: str) -> None:
    def program(x: mtf.Tensor) -> list[Any]:
        eye = mtf.eye(x.mesh, ("r", 4), ("c", 6), tf.int32)
        return [eye, mtf.tril(x > 0.0, "r", "c", 2), mtf.triu(mtf.to_int32(10.0 * x), "r", "c", -1)]

    eye, low, high = interpret(program, {"x": ("r:4 c:6", X[0])}, "rows:2;cols:2", layout).results
    np.testing.assert_array_equal(eye, np.eye(4, 6))
    np.testing.assert_array_equal(low, np.tril(X[0] > 0, 2))
    np.testing.assert_array_equal(high, np.triu((10 * X[0]).astype(np.int32), -1))


def test_a_dimension_that_is_not_there() -> None:
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "rows:2 columns:2")
    with pytest.raises(ShapeError, match=r'no dimension "column" .*did you mean "columns"'):
        mtf.tril(x, "rows", "column")
