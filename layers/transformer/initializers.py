"""Initial weights that depend on where in a Transformer a kernel is."""

from __future__ import annotations

import dataclasses
import math

import gin

import meshtf as mtf
from meshtf.field_checks import check_kinds, check_not_negative, check_sizes
from meshtf.layers.initializers import Initializer, NormalInitializer


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ResidualInitializer:
    """Normal weights for kernels whose products are added to a residual connection, smaller if more of them are added
    (GPT-2).

    Attributes:
      num_layers: the stack's layers.
      sublayers_per_layer: the sublayers of a layer, each of which adds to the connection.
      stddev: the standard deviation for a single product; it is divided by the square root of their number.
    """

    num_layers: int
    sublayers_per_layer: int = 2
    stddev: float = 0.02

    def __post_init__(self) -> None:
        check_kinds(self)
        check_sizes(self, "num_layers", "sublayers_per_layer")
        check_not_negative(self, "stddev")

    def __call__(self, reduced_dims: mtf.Shape, new_dims: mtf.Shape) -> Initializer:
        stddev = self.stddev / math.sqrt(self.num_layers * self.sublayers_per_layer)
        return NormalInitializer(stddev)(reduced_dims, new_dims)
