from __future__ import annotations

from typing import Any

import gin
import numpy as np
import pytest
import tensorflow as tf

import meshtf as mtf
from meshtf.layers import (
    DenseInitializer,
    NormalInitializer,
    TruncatedNormalInitializer,
    VarianceScalingInitializer,
    ZerosInitializer,
)
from meshtf.testing import interpret

INPUTS, OUTPUTS = mtf.Dimension("inputs", 400), mtf.Dimension("outputs", 100)
# A normal cut at two standard deviations has this share of its standard deviation.
CUT = 0.8796


def sample(initializer: DenseInitializer) -> np.ndarray:
    def program(mesh: mtf.Mesh) -> mtf.Tensor:
        fill = initializer(mtf.Shape([INPUTS]), mtf.Shape([OUTPUTS]))
        return fill(mesh, mtf.Shape([INPUTS, OUTPUTS]), tf.float32)

    return interpret(program, {}, "rows:2", "inputs:rows", seed=3).results


@pytest.mark.parametrize(
    ("initializer", "deviation", "largest"),
    [
        (VarianceScalingInitializer(), CUT * 400**-0.5, 2 * 400**-0.5),
        (VarianceScalingInitializer(scale=2.0, mode="fan_out"), CUT * (2 / 100) ** 0.5, 2 * (2 / 100) ** 0.5),
        (VarianceScalingInitializer(mode="fan_avg", distribution="uniform"), 250**-0.5, (3 / 250) ** 0.5),
        (VarianceScalingInitializer(distribution="untruncated_normal"), 400**-0.5, np.inf),
        (NormalInitializer(stddev=0.02), 0.02, np.inf),
        (TruncatedNormalInitializer(stddev=0.02), 0.02, 2 * 0.02 / CUT),
    ],
)
def test_standard_deviation(initializer: DenseInitializer, deviation: float, largest: float) -> None:
    weights = sample(initializer)
    assert weights.std() == pytest.approx(deviation, rel=5 / np.sqrt(2 * weights.size))  # five standard errors
    assert abs(weights.mean()) < 5 * deviation / np.sqrt(weights.size)
    if np.isinf(largest):
        assert abs(weights).max() > 3 * deviation
    else:
        assert 0.99 * largest < abs(weights).max() < 1.01 * largest


def test_zeros() -> None:
    assert not sample(ZerosInitializer()).any()


def test_is_made_in_gin() -> None:
    assert gin.get_configurable("VarianceScalingInitializer")() == VarianceScalingInitializer()
    for made in (NormalInitializer, TruncatedNormalInitializer):
        assert gin.get_configurable(made.__name__)(stddev=0.5) == made(0.5)


@pytest.mark.parametrize("options", [{"mode": "fan"}, {"distribution": "gauss"}, {"scale": 0.0}])
def test_bad_options_are_named(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"VarianceScalingInitializer: {next(iter(options))} must be"):
        VarianceScalingInitializer(**options)


@pytest.mark.parametrize("made", [NormalInitializer, TruncatedNormalInitializer])
def test_bad_standard_deviation(made: type) -> None:
    with pytest.raises(ValueError, match=f"{made.__name__}: stddev must be 0 or more, and is -1"):
        made(-1)
