"""Numbers at equal distances, as NumPy has them, under layouts."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.errors import DtypeError
from meshtf.testing import interpret


@pytest.mark.parametrize("layout", ["", "n:rows+cols"])
def test_as_in_numpy(layout: str) -> None:
    def program(mesh: mtf.Mesh) -> list[mtf.Tensor]:
        dtypes = (tf.float32, tf.float64)
        return [*(mtf.linspace(mesh, -0.3, 0.7, ("n", 12), d) for d in dtypes), mtf.linspace(mesh, 5, 9, ("one", 1))]

    single, double, alone = interpret(program, {}, "rows:2;cols:2", layout).results
    np.testing.assert_allclose(double, np.linspace(-0.3, 0.7, 12), atol=2e-16)
    np.testing.assert_allclose(single, np.linspace(-0.3, 0.7, 12), atol=2e-7)
    assert (double[0], double[-1], alone) == (-0.3, 0.7, 5.0)


def test_of_whole_numbers_there_is_range() -> None:
    with pytest.raises(DtypeError, match=r"a real floating dtype, not int32"):
        mtf.linspace(mtf.Mesh(mtf.Graph()), 0, 1, ("n", 2), tf.int32)
