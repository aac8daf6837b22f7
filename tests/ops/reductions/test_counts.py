"""Numbers of elements that are not 0, as NumPy has them, under layouts."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.testing import interpret


@pytest.mark.parametrize("layout", ["", "a:rows;b:cols"])
def test_as_in_numpy(layout: str) -> None:
    x = np.array([[0.0, -0.0, np.nan, 1.0], [2.0, 0.0, 0.0, -3.0]])

    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        return [mtf.count_nonzero(x), mtf.count_nonzero(x, reduced_dim="b"), mtf.count_nonzero(x < 0.0)]

    total, rows, below = interpret(program, {"x": ("a:2 b:4", x)}, "rows:2;cols:2", layout).results
    assert (total, total.dtype, below) == (4, np.int32, 1)
    np.testing.assert_array_equal(rows, np.count_nonzero(x, axis=1))
