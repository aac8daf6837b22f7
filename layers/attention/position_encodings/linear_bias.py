"""A bias that falls with distance, used instead of position embeddings."""

from __future__ import annotations

import dataclasses

import numpy as np

import meshtf as mtf
from meshtf.layers.attention.config import AttentionConfig
from meshtf.layers.attention.tokens import distance_ahead
from meshtf.takes_mesh import takes_mesh


@dataclasses.dataclass(frozen=True)
class LinearBias:
    """Minus the distance times a slope of each head: a `PositionBias` without variables (ALiBi, Press et al. 2022).

    The slopes of n heads are 2^(-8/n), its square, and so on. If n is no power of two, they are the slopes of the power
    below, and every second slope of the power above.

    Attributes:
      slopes: float32 [heads, (queries_per_head)].

    Examples:
      >>> bias = mtf.layers.LinearBias.make(mtf.layers.AttentionConfig(num_heads=2, d_kv=4))
      >>> value(bias.slopes)
      array([0.0625    , 0.00390625], dtype=float32)
    """

    slopes: mtf.Tensor

    @staticmethod
    @takes_mesh
    def make(mesh: mtf.Mesh, config: AttentionConfig) -> LinearBias:
        """The bias of these heads. The mesh may be left out."""
        heads = config.query_heads
        return LinearBias(mtf.constant(mesh, _slopes(config.num_heads).reshape(heads.to_integer_list), heads))

    def __call__(self, query_positions: mtf.Tensor, memory_positions: mtf.Tensor) -> mtf.Tensor:
        """The bias, float32 [heads, (queries_per_head), positions' dimensions]."""
        distance = mtf.abs(mtf.to_float(distance_ahead(query_positions, memory_positions)))
        return mtf.multiply(-self.slopes, distance, output_shape=self.slopes.shape + distance.shape)


def _slopes(num_heads: int) -> np.ndarray:
    below = 1 << (num_heads.bit_length() - 1)
    own = 2.0 ** (-8.0 / below * np.arange(1, below + 1))
    between = 2.0 ** (-4.0 / below * np.arange(1, 2 * below, 2))
    return np.concatenate([own, between])[:num_heads].astype(np.float32)
