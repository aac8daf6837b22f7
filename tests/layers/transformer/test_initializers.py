"""Weights that are added to a residual connection start smaller, the more there are."""

from __future__ import annotations

import numpy as np
import pytest

import meshtf as mtf
from meshtf.layers.transformer import ResidualInitializer
from meshtf.testing import interpret


@pytest.mark.parametrize(("num_layers", "stddev"), [(2, 0.01), (8, 0.005)])
def test_the_deviation_of_residual_kernels(num_layers: int, stddev: float) -> None:
    rows, columns = mtf.Dimension("rows", 64), mtf.Dimension("columns", 64)
    initializer = ResidualInitializer(num_layers)(mtf.Shape([rows]), mtf.Shape([columns]))

    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        return mtf.get_variable(mesh, "kernel", [rows, columns], initializer=initializer)

    assert np.std(interpret(program, {}, "all:1").results) == pytest.approx(
        stddev, rel=5 / np.sqrt(2 * 64 * 64)
    )  # five standard errors
