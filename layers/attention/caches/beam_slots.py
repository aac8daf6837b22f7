"""Caches of keys and values that stay in their places while a beam search moves its hypotheses from beam to beam.

Beam search keeps the b best hypotheses. After each token, several may continue the same one. Say beams 0 and 1 both
continue the old beam 1. A usual cache is then copied in the new order, [1, 1]. Here a table says for each position
which beam's slot has the keys:

    before    beam 0: slots 0 0 0       after    beam 0: slots 1 1 1 0
              beam 1: slots 1 1 1                beam 1: slots 1 1 1 1

Each beam writes its new token to its own slot (the last column). Only the table's rows are copied: one integer per
position.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.layers._operands import Dims
from meshtf.layers.attention._scores import (
    biased_and_masked,
    check_operands,
    logits_dtype,
    logits_shape,
    softmax_weights,
    where_any_visible,
)
from meshtf.layers.attention.config import AttentionConfig
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import MEMORY_LENGTH, is_index
from meshtf.takes_mesh import takes_mesh
from meshtf.thresholds import MOST_MULTIPLIED_QUERIES

BEAM_SLOTS, POSITIONS = "beam_slots", "positions"


@dataclasses.dataclass(frozen=True)
class BeamSlots:
    """A table of the slots in which hypotheses have their keys and values at each position. All layers share it.

    A cache has a slot for each beam. A beam writes the keys and values of its own tokens to its own slot. When
    hypotheses change their beams, their rows of the table go with them, and no cache is copied. Attention multiplies
    queries by the keys of all slots of their sequence, and takes the product with the slot that the table names. For b
    beams that is b times the products, but no copy, which would read and write all keys and values.

    Attributes:
      holders: int32 [.., beam, positions], the slot of each position of a hypothesis.
      beam: the dimension of the hypotheses.

    Examples:
      >>> config, beam = mtf.layers.AttentionConfig(num_heads=2, d_kv=4), mtf.Dimension("beam", 3)
      >>> rows, q = mtf.Shape([("batch", 4), beam]), mtf.ones(mesh, "batch:4 beam:3 heads:2 d_kv:4")
      >>> slots = mtf.layers.BeamSlots.start(rows, max_length=16, beam=beam)
      >>> cache = mtf.layers.KeyValueCache.empty(rows, max_length=16, config=config, beam=beam)
      >>> position = mtf.constant(mesh, 5, dtype=tf.int32)
      >>> slots, cache = slots.written(position), cache.write(position, slots.own(q), slots.own(q))
      >>> pattern = mtf.layers.AttentionPattern(memory=cache.tokens(position))
      >>> slots.attention(q, cache.k, cache.v, pattern, mtf.layers.AttentionOptions()).shape
      Shape[batch:4 beam:3 heads:2 d_kv:4]
    """

    holders: mtf.Tensor
    beam: mtf.Dimension

    @staticmethod
    @takes_mesh
    def start(mesh: mtf.Mesh, batch_dims: Dims, max_length: int, beam: mtf.Dimension) -> BeamSlots:
        """The table before anything is written. All slots are still equal, so every position is in the first one.

        Args:
          mesh: the program's mesh. May be left out.
          batch_dims: the table's dimensions, such as [batch, beam]. Without the beam, all beams have the same row.
          max_length: the number of positions of the longest sequence.
          beam: the dimension of the hypotheses.
        """
        shape = mtf.convert_to_shape(batch_dims) + [mtf.Dimension(POSITIONS, max_length)]
        return BeamSlots(mtf.zeros(mesh, shape, tf.int32), beam)

    def written(self, position: mtf.Tensor) -> BeamSlots:
        """The table after each beam wrote to its own slot at a position, int32 [..]; at a negative one it wrote
        nothing.
        """
        shape = self.holders.shape
        is_here = mtf.equal(mtf.range(position.mesh, shape[POSITIONS]), position)
        itself = mtf.range(position.mesh, self.beam)
        return dataclasses.replace(self, holders=mtf.where(is_here, itself, self.holders, output_shape=shape))

    def own(self, x: mtf.Tensor) -> mtf.Tensor:
        """Renames the beams of x, which they write to their own slots: [.., beam, ..] -> [.., beam_slots, ..]."""
        return x.rename({self.beam.name: BEAM_SLOTS})

    def attention(
        self, q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor, pattern: AttentionPattern, options: AttentionOptions
    ) -> mtf.Tensor:
        """Attends from each hypothesis to its own keys and values, as `dot_product_attention` does, without dropout.

        Args:
          q: [.., beam, heads, (queries_per_head), d_kv].
          k: [.., (heads), beam_slots, memory_length, d_kv].
          v: the same.
          pattern: who sees whom, and the bias. The memory has positions.
          options: precision, an extra logit.

        Raises:
          ShapeError: dimensions are missing, misspelt, or of other sizes.
          DtypeError: q, k and v are not floating, or differ.
        """
        check_operands(q, k, v, MEMORY_LENGTH, beside=BEAM_SLOTS)
        assert pattern.memory.positions is not None
        is_held, dtype = self._is_held(pattern.memory.positions), logits_dtype(q, options)
        rows = logits_shape(q.shape, k.shape, MEMORY_LENGTH)
        every = rows[:-1] + [k.shape[BEAM_SLOTS], rows[-1]]
        products = mtf.einsum([q.astype(dtype), k.astype(dtype)], output_shape=every)
        # One slot holds the key of each position, so the sum over slots has one term that counts.
        held = mtf.reduce_sum(mtf.where(is_held, products, 0.0, output_shape=every), output_shape=rows)
        logits, visible = biased_and_masked(held, pattern, options)
        weights = softmax_weights(logits, options, MEMORY_LENGTH).astype(v.dtype)
        # A weight goes to the slot that holds the value, so that one product sums over slots and positions.
        masked = mtf.where(is_held, weights, 0.0, output_shape=every)
        return where_any_visible(visible, mtf.einsum([masked, v], output_shape=q.shape), MEMORY_LENGTH)

    def _is_held(self, positions: mtf.Tensor) -> mtf.Tensor:
        """Whether a slot has a hypothesis's key at each of these positions, [memory_length].

        The result is bool [.., beam, beam_slots, memory_length]. At a negative position, where nothing is visible, any
        slot may be true.
        """
        holders, memory = self.holders, positions.shape[MEMORY_LENGTH]
        if is_index(positions, MEMORY_LENGTH) and memory.size == holders.shape[POSITIONS].size:
            holders = holders.rename({POSITIONS: MEMORY_LENGTH})
        else:
            holders = mtf.gather(holders, mtf.maximum(positions, 0), POSITIONS)
        slots = slots_of(self.beam)
        shape = holders.shape - [memory] + [slots, memory]
        return mtf.equal(holders, mtf.range(holders.mesh, slots), output_shape=shape)


def stays(beam: mtf.Dimension, config: AttentionConfig) -> bool:
    """Whether it is faster to multiply by the keys of all slots than to copy them."""
    return beam.size * config.query_heads.size // config.memory_heads.size <= MOST_MULTIPLIED_QUERIES


def slots_of(beam: mtf.Dimension) -> mtf.Dimension:
    """The dimension of a cache that has a slot for each beam."""
    return mtf.Dimension(BEAM_SLOTS, beam.size)
