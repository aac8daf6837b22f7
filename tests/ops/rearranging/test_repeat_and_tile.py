"""Copies along a dimension, as NumPy has them, with gradients, under layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import ShapeError


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [mtf.repeat(x, 3, "a"), mtf.tile(x, 3, "a"), mtf.repeat(x, 2, "b"), mtf.tile(x, 2, "b")],
        lambda x: [tf.repeat(x, 3, 0), tf.tile(x, [3, 1]), tf.repeat(x, 2, 1), tf.tile(x, [1, 2])],
        {"x": ("a:4 b:6", np.random.default_rng(0).standard_normal((4, 6)))},
        ["a:rows;b:cols", "b:cols+rows"],
    )


def test_what_is_refused() -> None:
    x = mtf.ones(mtf.Mesh(mtf.Graph()), "n:3")
    with pytest.raises(ShapeError, match=r"repeats must not be negative, and is -1"):
        mtf.repeat(x, -1, "n")
    with pytest.raises(ShapeError, match=r"repeats must be a whole number known now, not 1\.5"):
        mtf.tile(x, 1.5, "n")
