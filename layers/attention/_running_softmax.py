"""A softmax over what comes block by block: running maximum, sum of exponentials, and weighted mean.

Milakov & Gimelshein (2018); Rabe & Staats (2021).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention._scores import extra_logit, masked_value
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.tokens import D_KV, MEMORY_LENGTH

State = list[mtf.Tensor]
"""Of each row: the maximum, the sum of exponentials less it, and the values weighted by these, [.., d_kv]."""


def initial_state(
    mesh: mtf.Mesh, rows: mtf.Shape, d_kv: mtf.Dimension, dtype: tf.DType, options: AttentionOptions
) -> State:
    """Before the first block."""
    zeros, means = mtf.zeros(mesh, rows, dtype), mtf.zeros(mesh, rows + [d_kv], dtype)
    extra = extra_logit(options, rows, dtype)
    if extra is None:
        lowest = masked_value(dtype) / 2  # above it, so that the terms of what is not visible are 0
        return [mtf.fill(mesh, lowest, rows, dtype), zeros, means]
    one = mtf.ones(mesh, rows, dtype)
    return [one * extra, one, means]


def with_block(
    state: State,
    logits: mtf.Tensor,
    weighted: Callable[[mtf.Tensor], mtf.Tensor],
    memory_dim: str = MEMORY_LENGTH,
) -> State:
    """With one block more, of the memory along a dimension. weighted: sums of values, weighted by what it is given."""
    top, total, mean = state
    new_top = mtf.maximum(top, mtf.reduce_max(logits, reduced_dim=memory_dim))
    terms, shrinking = mtf.exp(logits - new_top), mtf.exp(top - new_top)
    total = total * shrinking + mtf.reduce_sum(terms, reduced_dim=memory_dim)
    return [new_top, total, mean * shrinking + weighted(terms)]


def finished(state: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
    """Means, and the logarithms of the sums of exponentials."""
    top, total, mean = state
    total = mtf.where(mtf.greater(total, 0.0), total, 1.0)  # 0 in a row that sees nothing
    return [mean / total, top + mtf.log(total)]


def sum_gradients(
    outputs: Sequence[mtf.Tensor], output_grads: Sequence[mtf.Tensor | None]
) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
    """The logarithms of the sums of exponentials; and the gradients of `block_sums`, added up over all blocks.

    These are 1 and the mean. A softmax does not change with what all logits are shifted by, so that the shift counts as
    a constant.

    Args:
      outputs: what `finished` gave.
      output_grads: of these.
    """
    (mean, log_total), (dmean, dlog_total) = outputs, output_grads
    dmean = mtf.zeros_like(mean) if dmean is None else dmean
    dtotal = -mtf.reduce_sum(mean * dmean, reduced_dim=D_KV)
    return log_total, dtotal if dlog_total is None else dlog_total + dtotal, dmean


def block_sums(
    logits: mtf.Tensor,
    log_total: mtf.Tensor,
    weighted: Callable[[mtf.Tensor], mtf.Tensor],
    memory_dim: str = MEMORY_LENGTH,
) -> list[mtf.Tensor]:
    """Of a block whose scores are computed again: sums of exp(logits - log_total), and of values weighted by them."""
    terms = mtf.exp(logits - log_total)
    return [mtf.reduce_sum(terms, reduced_dim=memory_dim), weighted(terms)]
