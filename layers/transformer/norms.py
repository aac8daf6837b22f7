"""Normalization as a setting: an object that stores its epsilon, and is called with x."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import gin

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.field_checks import check_kinds, check_not_negative
from meshtf.layers._operands import Dims
from meshtf.layers.normalization import layer_norm, rms_norm


class Norm(Protocol):
    """Normalizes x over a dimension, or several together. Its variables go under a scope `norm`."""

    def __call__(self, x: mtf.Tensor, dim: Dims) -> mtf.Tensor: ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class RmsNorm:
    """Normalizes by the root of the mean square (Zhang & Sennrich 2019).

    Attributes:
      epsilon: added to the mean square.
      scale_offset: added to the variable `scale`; see `meshtf.layers.rms_norm`.
    """

    epsilon: float = 1e-6
    scale_offset: float = 0.0

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "epsilon")

    @language_function
    def __call__(self, x: mtf.Tensor, dim: Dims) -> mtf.Tensor:
        return rms_norm(x, dim, self.epsilon, scale_offset=self.scale_offset, name="norm")


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class LayerNorm:
    """Normalizes by mean and variance (Ba et al. 2016)."""

    epsilon: float = 1e-5
    use_bias: bool = True

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "epsilon")

    @language_function
    def __call__(self, x: mtf.Tensor, dim: Dims) -> mtf.Tensor:
        return layer_norm(x, dim, self.epsilon, use_bias=self.use_bias, name="norm")
