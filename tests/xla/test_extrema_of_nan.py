"""The gradient of a maximum or a minimum that is NaN: the same on XLA as on virtual CPUs."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import tpu_function

import meshtf as mtf


@pytest.mark.parametrize("layout", ["rows:all", "columns:all"])
def test_the_gradient_is_nan(layout: str) -> None:
    def program(x: mtf.Tensor) -> list[mtf.Tensor]:
        ys = [f(x, reduced_dim="columns") for f in (mtf.reduce_max, mtf.reduce_min)]
        return [mtf.gradients([mtf.reduce_sum(y)], [x])[0] for y in ys]

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    x[3, 5] = np.nan
    step = tpu_function(program, {"x": mtf.TensorSpec("rows:8 columns:8")}, "all:8", layout)
    for grad, place in zip(step(x=x), (7, 0), strict=True):
        expected = np.tile(np.arange(8) == place, (8, 1)).astype(np.float32)
        expected[3] = np.nan
        np.testing.assert_array_equal(grad.numpy(), expected)
