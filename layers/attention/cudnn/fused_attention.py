"""Attention by one kernel, where a platform has it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers.attention._scores import check_operands, where_any_visible
from meshtf.layers.attention.cudnn._kernels import AttentionForm, AttentionKernel
from meshtf.layers.attention.mask import AttentionMask
from meshtf.layers.attention.options import DEFAULT_OPTIONS, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import D_KV, LENGTH, MEMORY_LENGTH, is_index

HEADS = ("heads", "queries_per_head")
LARGEST_HEAD, HEAD_MULTIPLE = 128, 8
_HIDDEN = {tf.bfloat16: -(2.0**41), tf.float16: -(2.0**15)}
"""The bias of a token that is not visible. Two of them can be subtracted, which cuDNN does."""


@language_function
def fused_attention(
    q: mtf.Tensor,
    k: mtf.Tensor,
    v: mtf.Tensor,
    pattern: AttentionPattern,
    options: AttentionOptions = DEFAULT_OPTIONS,
    *,
    is_training: bool = False,
    otherwise: Callable[..., mtf.Tensor],
    rounds_bias: bool = True,
) -> mtf.Tensor:
    """Computes the same as `dot_product_attention`, by one kernel for scores, softmax and means, forward and backward.

    The kernel takes bfloat16 and float16, heads of at most 128 elements, a multiple of 8, and no dropout, extra logit
    or cap. For anything else `otherwise` is called. A causal mask over one sequence, with a window or without, is a
    part of the kernel. Other masks, such as those of segments, become a bias [length, memory_length].

    On other platforms than GPUs the same operation has a plain form, which holds the whole matrix of scores.

    Args:
      q: the queries. Operands and result are those of `dot_product_attention`.
      k: the keys.
      v: the values.
      pattern: who sees whom, and the bias.
      options: dropout, precision, an extra logit.
      is_training: whether weights are dropped.
      otherwise: the attention function to call if the kernel does not take the operands.
      rounds_bias: whether a bias by positions may be rounded to the type of q, as the kernel needs it.

    Raises:
      ShapeError, DtypeError, GraphError: as for `dot_product_attention`.
    """
    check_operands(q, k, v, MEMORY_LENGTH)
    own = options.in_mode(is_training)
    is_by_index = _is_causal_by_index(pattern)
    needs_bias = pattern.bias is not None or not _shows_all(pattern, is_by_index=is_by_index)
    fits = takes_operands(q, k) and _takes_options(own) and (rounds_bias or pattern.bias is None)
    if not fits or (needs_bias and (q.shape[LENGTH].size % 2 or k.shape[MEMORY_LENGTH].size % 2)):
        return otherwise(q, k, v, pattern, options, is_training=is_training)
    rest = dataclasses.replace(pattern, mask=AttentionMask()) if is_by_index else pattern
    batch, heads = _batch(q), [d for d in q.shape if d.name in HEADS]
    bias, visible = _bias(q, k, rest)
    form = AttentionForm(
        batch_dims=len(batch),
        is_causal=is_by_index,
        window=pattern.mask.window if is_by_index else None,
        has_bias=bias is not None,
        bias_has_batch=bias is not None and any(bias.shape.has(d.name) for d in batch),
        bias_has_heads=bias is not None and any(bias.shape.has(d.name) for d in heads),
        is_bias_learned=pattern.bias is not None,
    )
    queries = mtf.transpose(q, [*batch, q.shape[LENGTH], *heads, q.shape[D_KV]])
    memory = [mtf.transpose(x, [*batch, x.shape[MEMORY_LENGTH], *_heads_of(x), x.shape[D_KV]]) for x in (k, v)]
    found = mtf.slicewise(
        AttentionKernel(form),
        [queries, *memory, *([bias] if bias is not None else [])],
        [queries.shape, mtf.Shape([*batch, *heads, q.shape[LENGTH]])],
        [q.dtype, tf.float32],
        [*batch, *heads],
        name="fused_attention",
    )
    assert isinstance(found, tuple)  # the outputs, and the statistics that their gradient takes
    return where_any_visible(visible, mtf.transpose(found[0], q.shape), MEMORY_LENGTH)


def is_chosen_by_itself(q: mtf.Tensor, k: mtf.Tensor) -> bool:
    """Whether algorithm "auto" tries the kernel: the platform has it, and no rule splits lengths or `d_kv`."""
    kernels: Any = q.graph.kernels
    is_whole = kernels.split.isdisjoint((LENGTH, MEMORY_LENGTH, D_KV))
    return kernels.is_cuda and is_whole and takes_operands(q, k)


def takes_operands(q: mtf.Tensor, k: mtf.Tensor) -> bool:
    """Whether the kernel takes the type and the sizes of queries and keys."""
    if q.dtype not in _HIDDEN or not q.shape.has(LENGTH) or not k.shape.has(MEMORY_LENGTH):
        return False
    size = q.shape[D_KV].size
    if size > LARGEST_HEAD or size % HEAD_MULTIPLE:
        return False
    return all(k.shape.has(d.name) for d in _batch(q))


def _takes_options(options: AttentionOptions) -> bool:
    return not options.dropout_rate and options.extra_logit is None and options.logit_cap is None


def _batch(q: mtf.Tensor) -> list[mtf.Dimension]:
    return [d for d in q.shape if d.name not in (LENGTH, D_KV, *HEADS)]


def _heads_of(x: mtf.Tensor) -> list[mtf.Dimension]:
    return [d for d in x.shape if d.name in HEADS]


def _is_causal_by_index(pattern: AttentionPattern) -> bool:
    """Whether the mask is causal, and positions are indices. The kernel then applies the mask without a bias."""
    mask, query, memory = pattern.mask, pattern.query.positions, pattern.memory.positions
    if not mask.is_causal or mask.sees_prefix or query is None or memory is None:
        return False
    is_one = is_index(query, LENGTH) and is_index(memory, MEMORY_LENGTH)
    return is_one and query.shape[LENGTH].size == memory.shape[MEMORY_LENGTH].size


def _shows_all(pattern: AttentionPattern, *, is_by_index: bool) -> bool:
    """Whether the mask hides nothing, except what the kernel hides itself."""
    return pattern.memory.segments is None and (is_by_index or not pattern.mask.needs_positions)


def _bias(q: mtf.Tensor, k: mtf.Tensor, pattern: AttentionPattern) -> tuple[mtf.Tensor | None, mtf.Tensor | None]:
    """The bias by positions and the mask, together, in the type of q; and what is visible. None for none."""
    query, memory = pattern.query, pattern.memory
    visible = pattern.mask.visible(query, memory)
    bias = None
    if pattern.bias is not None:
        assert query.positions is not None
        assert memory.positions is not None
        bias = mtf.cast(pattern.bias(query.positions, memory.positions), q.dtype)
    given = [x for x in (bias, visible) if x is not None]
    if not given:
        return None, None
    names = {d.name for x in given for d in x.shape}
    batch, heads = _batch(q), _heads_of(q)
    # All dimensions of the batch or none, and all heads or none, as the kernel has one dimension for each.
    outer = [d for own in (batch, heads) if names & {d.name for d in own} for d in own]
    shape = mtf.Shape([*outer, q.shape[LENGTH], k.shape[MEMORY_LENGTH]])
    if visible is None:
        assert bias is not None
        return mtf.broadcast(bias, shape), None
    shown = mtf.zeros(q.mesh, [], q.dtype) if bias is None else bias
    hidden = _HIDDEN[q.dtype]
    return mtf.where(visible, shown, hidden, output_shape=shape), visible
