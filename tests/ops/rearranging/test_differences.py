"""Differences of neighbours, as NumPy has them, with gradients, under layouts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError, ShapeError


def test_values_and_gradients(agrees: Any) -> None:
    agrees(
        lambda x: [mtf.diff(x, "b"), mtf.diff(x, "b", 2), mtf.diff(x, "a"), mtf.diff(x, "a", 0)],
        lambda x: [
            x[:, 1:] - x[:, :-1],
            x[:, 2:] - 2 * x[:, 1:-1] + x[:, :-2],
            x[1:] - x[:-1],
            x,
        ],
        {"x": ("a:5 b:6", np.random.default_rng(0).standard_normal((5, 6)))},
        ["", "b:rows"],
    )


def test_what_is_refused() -> None:
    mesh = mtf.Mesh(mtf.Graph())
    with pytest.raises(ShapeError, match=r'3 differences of \[n:3\] along "n" leave no element; n must be from 0 to 2'):
        mtf.diff(mtf.ones(mesh, "n:3"), "n", 3)
    with pytest.raises(DtypeError, match=r"a number is needed, not bool"):
        mtf.diff(mtf.ones(mesh, "n:3", tf.bool), "n")
