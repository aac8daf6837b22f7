"""Attention within a window, at a cost that is linear in length.

For a window of 4, positions 8 to 11 are one block. Its queries see keys 5 to 11: the block's own, and 3 keys from the
block before (the halo). If cores hold blocks, a core needs only its neighbour's halo.
"""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError, ShapeError
from meshtf.layers.attention._blocks import Blocks
from meshtf.layers.attention._scores import attend, check_operands
from meshtf.layers.attention.options import DEFAULT_OPTIONS, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import LENGTH, MEMORY_LENGTH, as_memory, as_sequence

LENGTH_IN_BLOCK, MEMORY_IN_BLOCK = "length_in_block", "memory_in_block"


@language_function
def local_attention(
    q: mtf.Tensor,
    k: mtf.Tensor,
    v: mtf.Tensor,
    pattern: AttentionPattern,
    options: AttentionOptions = DEFAULT_OPTIONS,
    *,
    is_training: bool = False,
) -> mtf.Tensor:
    """Computes the same as `dot_product_attention`, for self-attention under a mask with a window.

    The sequence is cut into blocks of at most `window` positions. Each block's queries attend to its own keys and to
    the `window - 1` keys before them (and after them, if the mask is not causal). If `length` is split over the mesh,
    only these borders move.

    The number of blocks keeps the length's factors of 2 and 3, up to 24 or to length / window. You can split `length`
    over that many cores. A length that does not divide into blocks is padded with tokens that nobody sees.

    Args:
      q: [.., length, heads, (queries_per_head), d_kv].
      k: [.., memory_length, heads, d_kv]: the same sequence; or over `length`, which may be split where `memory_length`
        is not.
      v: the same.
      pattern: its mask has a window. Positions grow by 1 from each token to the next of its segment. The tensors of
        its tokens are over `length` and `memory_length`.
      options: as for `dot_product_attention`, but other weights are dropped.
      is_training: whether weights are dropped.

    Raises:
      ShapeError: as for `dot_product_attention`, or `length` and `memory_length` differ.
      GraphError: as for `dot_product_attention`, or the mask has no window.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> h = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> q, (k, v) = mtf.layers.project_queries(h, config), mtf.layers.project_keys_and_values(h, config)
      >>> mask = mtf.layers.AttentionMask(is_causal=True, window=4)
      >>> pattern = mtf.layers.AttentionPattern.within(mtf.layers.Tokens.along(h), mask)
      >>> mtf.layers.local_attention(q, k, v, pattern).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    mask, options = pattern.mask, options.in_mode(is_training)
    k, v = as_sequence(k), as_sequence(v)
    length = _checked_length(q, k, v)
    if mask.window is None:
        raise GraphError(f"local attention needs a window, and {mask} has none; give one, or use lean_attention")
    if length <= mask.window:
        return attend(q, as_memory(k), as_memory(v), pattern, options, MEMORY_LENGTH)
    cut = _Cut(Blocks.of_many(length, mask.window), mask.window - 1, not mask.is_causal or mask.sees_prefix)
    memory = pattern.memory
    if memory.segments is None:  # zeros enter before the first block: padding
        memory = dataclasses.replace(memory, segments=mtf.ones(q.mesh, [(MEMORY_LENGTH, length)], tf.int32))
    in_blocks = dataclasses.replace(pattern, query=pattern.query.map(cut.queries), memory=memory.map(cut.memory))
    y = attend(cut.queries(q), cut.memory(k), cut.memory(v), in_blocks, _renamed(options), MEMORY_IN_BLOCK)
    return cut.joined(y)


def _checked_length(q: mtf.Tensor, k: mtf.Tensor, v: mtf.Tensor) -> int:
    of_queries, of_memory = (x.shape[LENGTH].size for x in (q, k))
    if of_queries != of_memory:
        raise ShapeError(
            f"local attention is self-attention, so it needs as many keys as queries; there are {of_queries} queries "
            f"and {of_memory} keys"
        )
    check_operands(q, k, v)
    return of_queries


def _renamed(options: AttentionOptions) -> AttentionOptions:
    """The options for scores in blocks, in which other dimensions replace `length` and `memory_length`."""
    new_names = {LENGTH: (LENGTH, LENGTH_IN_BLOCK), MEMORY_LENGTH: (MEMORY_IN_BLOCK,)}
    names = (new for name in options.dropout_broadcast_dims for new in new_names.get(name, (name,)))
    return dataclasses.replace(options, dropout_broadcast_dims=tuple(names))


@dataclasses.dataclass(frozen=True)
class _Cut:
    """A sequence in blocks, which take the name `length`.

    Split over the mesh, each core has the blocks of its own part.

    halo: the number of positions that memory has beside its block, on the left or on both sides.
    """

    blocks: Blocks
    halo: int
    is_symmetric: bool

    def queries(self, x: mtf.Tensor) -> mtf.Tensor:
        return self._cut(x, LENGTH_IN_BLOCK)

    def memory(self, x: mtf.Tensor) -> mtf.Tensor:
        x = self._cut(as_sequence(x), MEMORY_IN_BLOCK)
        exchange = mtf.halo_exchange if self.is_symmetric else mtf.left_halo_exchange
        return exchange(x, LENGTH, MEMORY_IN_BLOCK, self.halo)

    def joined(self, y: mtf.Tensor) -> mtf.Tensor:
        """The opposite of `queries`."""
        return y.flatten([LENGTH, LENGTH_IN_BLOCK], LENGTH)[LENGTH, : self.blocks.used]

    def _cut(self, x: mtf.Tensor, inside: str) -> mtf.Tensor:
        new = [mtf.Dimension(LENGTH, self.blocks.count), mtf.Dimension(inside, self.blocks.size)]
        return self.blocks.padded(x, LENGTH).unflatten(LENGTH, new)
