"""Learned biases for how far apart tokens are.

Distances share buckets, which get wider with distance. With 8 buckets in one direction and max_distance 16:

    distance    0  1  2  3  4-5  6-7  8-11  12 and more
    bucket      0  1  2  3  4    5    6     7
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.layers.attention.config import AttentionConfig
from meshtf.layers.attention.tokens import distance_ahead
from meshtf.layers.initializers import VarianceScalingInitializer
from meshtf.takes_mesh import takes_mesh

BUCKETS = "relative_position_buckets"


@language_function
def relative_position_bucket(
    relative_position: mtf.Tensor, num_buckets: int = 32, max_distance: int = 128, *, is_bidirectional: bool = True
) -> mtf.Tensor:
    """Buckets of distances (Raffel et al. 2020): exact for half of the buckets, then logarithmically wider.

    Args:
      relative_position: int32, the memory's position minus the query's.
      num_buckets: the number of buckets.
      max_distance: distances of this or more share the last bucket.
      is_bidirectional: whether half of the buckets are for tokens ahead; if not, all tokens ahead are in bucket 0.

    Returns:
      int32 in [0, num_buckets), of the same shape.

    Raises:
      GraphError: `num_buckets` or `max_distance` is too small for its buckets.

    Examples:
      >>> ahead = mtf.constant(mesh, [-1, 0, 1, 500], "n:4", tf.int32)
      >>> value(mtf.layers.relative_position_bucket(ahead))
      array([ 1,  0, 17, 31], dtype=int32)
    """
    buckets = _buckets_of_distances(num_buckets // 2 if is_bidirectional else num_buckets, max_distance)
    table = mtf.constant(relative_position.mesh, buckets, [("distance", len(buckets))], tf.int32)
    # Limited before its sign is turned: minus the lowest int32 is no int32.
    limited = mtf.clip_by_value(relative_position, -max_distance, max_distance)

    def looked_up(distance: mtf.Tensor) -> mtf.Tensor:
        return table["distance", distance]

    if not is_bidirectional:
        return looked_up(mtf.maximum(-limited, 0))
    is_ahead = mtf.cast(limited > 0, tf.int32)
    return looked_up(mtf.abs(limited)) + is_ahead * (num_buckets // 2)


def _buckets_of_distances(num_buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of each distance from 0 to `max_distance`."""
    exact = num_buckets // 2
    if exact < 1 or max_distance <= exact:
        raise GraphError(
            f"of the {num_buckets} buckets on each side, the first {exact} hold one distance each, and the others "
            f"reach max_distance={max_distance}; use at least 2 buckets, and a max_distance above {exact}"
        )
    distances = np.arange(max_distance + 1)
    share = np.log(np.maximum(distances, 1) / exact) / math.log(max_distance / exact)
    # A distance at a border belongs to the next bucket. The small number keeps it there however its logarithm is
    # rounded.
    wide = exact + np.floor(share * (num_buckets - exact) + 1e-9).astype(np.int32)
    return np.where(distances < exact, distances, np.minimum(wide, num_buckets - 1)).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class RelativePositionBias:
    """T5's learned bias for each bucket and head. A `PositionBias`.

    Attributes:
      table: [relative_position_buckets, heads, (queries_per_head)], floating.
      max_distance, is_bidirectional: as for `relative_position_bucket`.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> bias = mtf.layers.RelativePositionBias.make(config, is_bidirectional=False)
      >>> bias.table
      relative_attention_bias [relative_position_buckets:32 heads:2] float32
    """

    table: mtf.Tensor
    max_distance: int = 128
    is_bidirectional: bool = True

    @staticmethod
    @takes_mesh
    def make(
        mesh: mtf.Mesh,
        config: AttentionConfig,
        num_buckets: int = 32,
        max_distance: int = 128,
        *,
        is_bidirectional: bool,
        name: str = "relative_attention_bias",
    ) -> RelativePositionBias:
        """The bias with a variable of `num_buckets` x heads under the open scope, uniform at first.

        You may make one before a stack of layers and use it in all of them, as T5 does. A table of less than 32 bits is
        widened here, once. If logits rounded its gradient instead, each layer would have to sum a gradient as large as
        a matrix of scores over the cores.
        The mesh may be left out.
        """
        buckets = mtf.Dimension(BUCKETS, num_buckets)
        heads = config.query_heads
        initializer = VarianceScalingInitializer(mode="fan_avg", distribution="uniform")(mtf.Shape([buckets]), heads)
        table = mtf.get_variable(mesh, name, [buckets, *heads], initializer=initializer)
        if table.dtype in (tf.float16, tf.bfloat16):
            table = mtf.to_float(table)
        return RelativePositionBias(table, max_distance, is_bidirectional)

    def __call__(self, query_positions: mtf.Tensor, memory_positions: mtf.Tensor) -> mtf.Tensor:
        """The bias, [heads, (queries_per_head), positions' dimensions], of the table's dtype."""
        relative = distance_ahead(query_positions, memory_positions)
        num_buckets = self.table.shape[BUCKETS].size
        bucket = relative_position_bucket(
            relative, num_buckets, self.max_distance, is_bidirectional=self.is_bidirectional
        )
        others = [dim for dim in self.table.shape if dim.name != BUCKETS]  # heads, and in a pipeline stages
        return mtf.gather(self.table, bucket, BUCKETS, output_shape=others + bucket.shape.dims)
