"""Initial values of a layer's weights, from the roles of its dimensions.

A plain initializer fills one shape, and cannot tell which dimensions a layer sums over. So a layer passes its
dimensions, by role, to a `DenseInitializer`, and fan-in is never guessed from their order. For attention's q
[d_model:512, heads:8, d_kv:64], which sums over d_model, fan-in is 512. From the order of the dimensions, one would
guess 4096.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import gin
import tensorflow as tf

import meshtf as mtf
from meshtf.field_checks import check_above_zero, check_kinds, check_not_negative

Initializer: TypeAlias = "Callable[[mtf.Mesh, mtf.Shape, tf.DType], mtf.Tensor]"
"""A function that fills a shape on a mesh with initial values; the engine runs it slice by slice."""

FanMode: TypeAlias = Literal["fan_in", "fan_out", "fan_avg"]
Distribution: TypeAlias = Literal["normal", "untruncated_normal", "uniform"]

CUT_STDDEV = 0.8796256610342398
"""The standard deviation of a standard normal cut at two standard deviations."""


class DenseInitializer(Protocol):
    """Makes the initializer of a kernel [expert_dims, reduced_dims, new_dims].

    Dimensions of the kernel that are in neither argument are parallel copies. They count in no fan.

    Examples:
      >>> zeros: mtf.layers.DenseInitializer = lambda reduced_dims, new_dims: mtf.zeros
      >>> mtf.layers.dense(x, mtf.Dimension("d_ff", 32), kernel_initializer=zeros).shape
      Shape[batch:4 d_ff:32]
    """

    def __call__(self, reduced_dims: mtf.Shape, new_dims: mtf.Shape) -> Initializer: ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class VarianceScalingInitializer:
    """Weights of variance `scale / fan` (Glorot & Bengio 2010; He et al. 2015 with `scale=2.0`).

    Attributes:
      scale: a factor of the variance.
      mode: the fan: the inputs that a sum runs over, the outputs, or the mean of the two.
      distribution: "normal" is a normal of that variance cut at two standard deviations, as in Mesh-TensorFlow (the cut
        leaves a standard deviation 0.88 times as large); "untruncated_normal" and "uniform" have exactly that variance.

    Examples:
      >>> initializer = mtf.layers.VarianceScalingInitializer(scale=2.0, mode="fan_out")
      >>> mtf.layers.dense(x, mtf.Dimension("d_ff", 32), kernel_initializer=initializer).shape
      Shape[batch:4 d_ff:32]
    """

    scale: float = 1.0
    mode: FanMode = "fan_in"
    distribution: Distribution = "normal"

    def __post_init__(self) -> None:
        check_kinds(self)
        check_above_zero(self, "scale")

    def __call__(self, reduced_dims: mtf.Shape, new_dims: mtf.Shape) -> Initializer:
        fan_in, fan_out = reduced_dims.size, new_dims.size
        fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        variance = self.scale / max(1.0, fans[self.mode])
        if self.distribution == "normal":
            return mtf.TruncatedNormal(stddev=math.sqrt(variance))
        if self.distribution == "untruncated_normal":
            return mtf.RandomNormal(stddev=math.sqrt(variance))
        limit = math.sqrt(3 * variance)
        return mtf.RandomUniform(-limit, limit)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class NormalInitializer:
    """Normal weights with a fixed standard deviation, whatever the dimensions.

    Examples:
      >>> initializer = mtf.layers.NormalInitializer(stddev=0.02)
      >>> mtf.layers.dense(x, mtf.Dimension("d_ff", 32), kernel_initializer=initializer).shape
      Shape[batch:4 d_ff:32]
    """

    stddev: float = 0.02

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "stddev")

    def __call__(self, reduced_dims: mtf.Shape, new_dims: mtf.Shape) -> Initializer:
        return mtf.RandomNormal(stddev=self.stddev)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class TruncatedNormalInitializer:
    """Weights of a normal cut at two of its standard deviations.

    Attributes:
      stddev: the standard deviation after the cut; the normal's is 1 / 0.88 times as large.

    Examples:
      >>> initializer = mtf.layers.TruncatedNormalInitializer(stddev=0.02)
      >>> mtf.layers.dense(x, mtf.Dimension("d_ff", 32), kernel_initializer=initializer).shape
      Shape[batch:4 d_ff:32]
    """

    stddev: float = 0.02

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "stddev")

    def __call__(self, reduced_dims: mtf.Shape, new_dims: mtf.Shape) -> Initializer:
        return mtf.TruncatedNormal(stddev=self.stddev / CUT_STDDEV)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ZerosInitializer:
    """Weights that start at zero.

    Examples:
      >>> initializer = mtf.layers.ZerosInitializer()
      >>> mtf.layers.dense(x, mtf.Dimension("d_ff", 32), kernel_initializer=initializer).shape
      Shape[batch:4 d_ff:32]
    """

    def __call__(self, reduced_dims: mtf.Shape, new_dims: mtf.Shape) -> Initializer:
        return mtf.zeros
