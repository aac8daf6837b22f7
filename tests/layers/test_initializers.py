from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import VarianceScalingInitializer

INPUTS, OUTPUTS = mtf.Dimension("inputs", 400), mtf.Dimension("outputs", 100)
# A normal cut at two standard deviations has this share of its standard deviation.
CUT = 0.8796


def sample(initializer: VarianceScalingInitializer) -> np.ndarray:
    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        fill = initializer(mtf.Shape([INPUTS]), mtf.Shape([OUTPUTS]))
        return fill(mesh, mtf.Shape([INPUTS, OUTPUTS]), tf.float32)

    return np.asarray(mtf.function(program, mtf.SpmdMeshImpl("rows:2", "inputs:rows"), inputs={}, seed=3)())


@pytest.mark.parametrize(
    ("options", "deviation"),
    [
        ({}, CUT * 400**-0.5),
        ({"scale": 2.0, "mode": "fan_out"}, CUT * (2 / 100) ** 0.5),
        ({"mode": "fan_avg", "distribution": "uniform"}, 250**-0.5),
    ],
)
def test_variance_follows_the_fan(options: dict[str, Any], deviation: float) -> None:
    weights = sample(VarianceScalingInitializer(**options))
    assert weights.std() == pytest.approx(deviation, rel=0.02)
    assert abs(weights.mean()) < 0.02 * deviation


@pytest.mark.parametrize("options", [{"mode": "fan"}, {"distribution": "gauss"}, {"scale": 0.0}])
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"VarianceScalingInitializer: {next(iter(options))} must be"):
        VarianceScalingInitializer(**options)
