"""Lengths of vectors, as NumPy has them, with gradients, under layouts, at 0 and beyond the squares of a dtype."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, UsageError
from meshtf.testing import interpret

X = np.random.default_rng(0).standard_normal((4, 6))


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [
            mtf.norm(x),
            mtf.norm(x, "b"),
            mtf.norm(x, output_shape="b:6", ord=1),
            mtf.norm(x, reduced_dim="b", ord=math.inf),
        ],
        lambda x: [tf.norm(x), tf.norm(x, axis=1), tf.norm(x, 1, axis=0), tf.norm(x, np.inf, axis=1)],
        {"x": ("a:4 b:6", X)},
        ["a:rows;b:cols", "b:cols+rows"],
    )


@pytest.mark.parametrize("layout", ["", "n:rows"])
def test_a_length_of_zero_and_lengths_whose_squares_are_no_numbers(layout: str) -> None:
    x = np.array([[0.0, 0.0], [3e30, 4e30], [3e-30, 4e-30], [3.0, -4.0]], np.float32)

    def program(x: mtf.Tensor) -> list[Any]:
        lengths = [mtf.norm(x, reduced_dim="n", ord=order) for order in (2, 1, math.inf)]
        return [*lengths, *(mtf.gradients([length], [x])[0] for length in lengths)]

    found = interpret(program, {"x": ("m:4 n:2", x)}, "rows:2", layout).results
    np.testing.assert_allclose(found[0], [0.0, 5e30, 5e-30, 5.0], rtol=1e-6)
    np.testing.assert_allclose(found[3], [[0.0, 0.0], [0.6, 0.8], [0.6, 0.8], [0.6, -0.8]], rtol=1e-6)
    np.testing.assert_array_equal(found[4], np.sign(x))
    np.testing.assert_array_equal(found[5], [[0.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, -1.0]])


def test_complex_and_narrow_numbers() -> None:
    def program(x: mtf.Tensor, z: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.to_float(mtf.norm(mtf.cast(x, tf.float16))), mtf.norm(z)]

    x, z = np.array([300.0, 400.0], np.float32), np.array([3j, 4.0 + 0j])
    assert interpret(program, {"x": ("n:2", x), "z": ("n:2", z)}, "one:1").results == [500.0, 5.0]


def test_what_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with pytest.raises(UsageError, match=r"ord is 1, 2 or math\.inf, not 3"):
        mtf.norm(mtf.ones(mesh, "n:2"), ord=3)
    with pytest.raises(DtypeError, match=r"a floating tensor is needed, not int32"):
        mtf.norm(mtf.range(mesh, ("n", 2)))
