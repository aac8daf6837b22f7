"""Running results by doubling, against loops."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import meshtf as mtf
from meshtf.ops.reductions.doubling import before, up_to
from meshtf.testing import interpret


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_up_to_and_before(size: int) -> None:
    x = np.random.default_rng(size).integers(1, 9, size).astype(np.float64)
    dim = mtf.Dimension("n", size)

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [f(x, dim, mtf.multiply, 1, reverse=r) for f in (up_to, before) for r in (False, True)]

    expected = [
        [functools.reduce(np.multiply, part, 1.0) for part in parts]
        for parts in (
            [x[: i + 1] for i in range(size)],
            [x[i:] for i in range(size)],
            [x[:i] for i in range(size)],
            [x[i + 1 :] for i in range(size)],
        )
    ]
    for layout in ("", "n:rows"):
        found = interpret(program, {"x": ([dim], x)}, "rows:2", layout, max_padding=0.5).results
        np.testing.assert_array_equal(found, expected)
