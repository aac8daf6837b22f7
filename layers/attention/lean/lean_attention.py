"""Attention that never holds the whole matrix of scores."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.layers.attention._blocks import Blocks
from meshtf.layers.attention._dropped import is_independent, kept_weights, noise_shape_of
from meshtf.layers.attention._scores import attend, check_operands
from meshtf.layers.attention.lean._blocked_memory import BlockedMemory
from meshtf.layers.attention.lean._causal_attention import CausalAttention, halving_of
from meshtf.layers.attention.lean._strided_attention import StridedAttention
from meshtf.layers.attention.options import DEFAULT_OPTIONS, DROPOUT, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import LENGTH, MEMORY_LENGTH, Tokens


@language_function
def lean_attention(
    q: mtf.Tensor,
    k: mtf.Tensor,
    v: mtf.Tensor,
    pattern: AttentionPattern,
    options: AttentionOptions = DEFAULT_OPTIONS,
    *,
    is_training: bool = False,
    block_size: int = 512,
) -> mtf.Tensor:
    """Computes the same as `dot_product_attention`, with scores for `block_size` positions of the memory at a time.

    A loop over blocks keeps the running maximum, sum and mean of each query (Milakov & Gimelshein 2018; Rabe & Staats
    2021). The gradient keeps one number per query and head, and computes the scores again, block by block. Memory grows
    with length, not with its square.

    Scores that a causal mask hides are not computed, if they are known while the graph is built. For this, queries and
    memory must be one sequence, their positions those of `Tokens.along`, and the mask must not use `sees_prefix`. The
    sequence is then cut in half again and again, down to blocks of at most half of `block_size` positions. A later
    half sees all of the earlier one, and each block sees a part of itself. With n blocks, (n + 1) / 2n of the scores
    are computed, and fewer with a window. A sequence that is split over the mesh moves once, so that each core has a
    part of every block.

    Under another mask, block j of n has every n-th position of the memory from the j-th on. A memory that is split over
    the mesh then stays where it is. A length that does not divide is padded with positions that nobody sees.

    Args:
      q: the queries. Operands and result are those of `dot_product_attention`.
      k: the keys.
      v: the values.
      pattern: who sees whom, and the bias.
      options: dropout, precision, an extra logit.
      is_training: whether weights are dropped.
      block_size: about how many positions of the memory a block has. If the memory is split, blocks divide as it does.

    Raises:
      ShapeError: as for `dot_product_attention`, or k has no `memory_length`.
      GraphError: as `dot_product_attention`; or each weight is dropped by itself and `memory_length` has no divisor
        near `block_size`.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> h = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> q, (k, v) = mtf.layers.project_queries(h, config), mtf.layers.project_keys_and_values(h, config)
      >>> causal = mtf.layers.AttentionMask(is_causal=True)
      >>> pattern = mtf.layers.AttentionPattern.within(mtf.layers.Tokens.along(h), causal)
      >>> mtf.layers.lean_attention(q, k, v, pattern, block_size=8).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    check_operands(q, k, v, MEMORY_LENGTH)
    options = options.in_mode(is_training)
    blocks = Blocks.of_wide(k.shape[MEMORY_LENGTH].size, _checked(block_size))
    halving = halving_of(q, k, pattern, options, block_size) if blocks.count > 1 else None
    if halving is not None:
        y = CausalAttention(halving, q, k, v, pattern, options).result()
        return y.astype(q.dtype).transpose(q.shape)
    by_itself = is_independent(q, k, options)
    if by_itself and blocks.padding and blocks.count > 1:
        blocks = _without_padding(blocks, block_size)
    if blocks.count == 1:
        return attend(q, k, v, pattern, options, MEMORY_LENGTH)
    tokens = _padding_told(pattern.memory, blocks, q.mesh)
    if by_itself:
        memory = BlockedMemory(k, v, tokens, None).cut(blocks).numbered(blocks.count)
        drawn = _drawn_in_blocks(q, k, options, blocks)
    else:
        memory, drawn = BlockedMemory(k, v, tokens, kept_weights(q, k, options)).cut(blocks), None
    y = StridedAttention(q, memory, pattern, options, drawn).result()
    return y.astype(q.dtype).transpose(q.shape)


def attends_in_blocks(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, block_size: int) -> bool:
    """Whether `lean_attention` takes these operands in training.

    If dropout drops each weight independently, it cannot pad `memory_length`, because random bits depend on the
    position in the unpadded whole. It then needs blocks that divide `memory_length`, and are not much smaller than
    `block_size`.
    """
    blocks = Blocks.of_wide(k.shape[MEMORY_LENGTH].size, block_size)
    if not blocks.padding or not is_independent(q, k, options):
        return True
    return _is_wide_enough(Blocks.exact(blocks.used, block_size), block_size)


def _is_wide_enough(blocks: Blocks, block_size: int) -> bool:
    """Whether each step of the loop has enough work: blocks are an eighth of `block_size` or more."""
    return 8 * blocks.size >= block_size


def _without_padding(blocks: Blocks, block_size: int) -> Blocks:
    """Blocks without padding, whose size is a divisor of the length: random bits depend on the position in the
    whole.

    Raises:
      GraphError: blocks would be of less than an eighth of `block_size`, and so a loop of little work in each step.
    """
    exact = Blocks.exact(blocks.used, block_size)
    if not _is_wide_enough(exact, block_size):
        raise GraphError(
            f"to drop each weight independently, blocks must divide {MEMORY_LENGTH}, but the largest divisor of "
            f"{blocks.used} up to block_size, {block_size}, is {exact.size}; pad {MEMORY_LENGTH} to a multiple of a "
            f'power of two, or drop weights together, as with dropout_broadcast_dims=("{LENGTH}",)'
        )
    return exact


def _drawn_in_blocks(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions, blocks: Blocks) -> mtf.DropoutInBlocks:
    noise_shape = noise_shape_of(q, k, options)
    return mtf.DropoutInBlocks(q.mesh, noise_shape, MEMORY_LENGTH, blocks.count, options.dropout_rate, DROPOUT)


def _checked(block_size: int) -> int:
    if block_size < 1:
        raise GraphError(f"block_size must be at least 1, and is {block_size}")
    return block_size


def _padding_told(memory: Tokens, blocks: Blocks, mesh: mtf.Mesh) -> Tokens:
    """The tokens, with segments if there is padding."""
    if memory.segments is not None or not blocks.padding:
        return memory
    return dataclasses.replace(memory, segments=mtf.ones(mesh, [(MEMORY_LENGTH, blocks.used)], tf.int32))
