"""A softmax over logits that come block by block: it keeps a running maximum, sum and mean for each row.

Milakov & Gimelshein (2018); Rabe & Staats (2021). For the logits 1, 3 and then 2 of values a, b, c:

    block     maximum   sum of exp(logit - maximum)     weighted values
    1, 3      3         e^-2 + e^0                      e^-2 a + e^0 b
    2         3         e^-2 + e^0 + e^-1               e^-2 a + e^0 b + e^-1 c

If a block raises the maximum, the sums so far shrink by exp(old maximum - new maximum). The quotient of both sums is
the mean, as if all logits had been there at once. No exponential overflows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

import meshtf as mtf
from meshtf.layers.attention._scores import extra_logit, masked_value
from meshtf.layers.attention.options import AttentionOptions
from meshtf.layers.attention.tokens import D_KV, MEMORY_LENGTH

State = list[mtf.Tensor]
"""Three tensors with a value per row: the maximum, the sum of exp(logit - maximum), and the sum of the values weighted
by these exponentials, [.., d_kv].
"""


def initial_state(
    mesh: mtf.Mesh, rows: mtf.Shape, d_kv: mtf.Dimension, dtype: tf.DType, options: AttentionOptions
) -> State:
    """The state before the first block."""
    zeros, means = mtf.zeros(mesh, rows, dtype), mtf.zeros(mesh, rows + [d_kv], dtype)
    extra = extra_logit(options, rows, dtype)
    if extra is None:
        lowest = masked_value(dtype) / 2  # above masked logits, so their terms are 0
        return [mtf.fill(mesh, lowest, rows, dtype), zeros, means]
    # The extra logit is the first element of each row: its own maximum, with exp(0) = 1 as the sum and a value of
    # zeros.
    one = mtf.ones(mesh, rows, dtype)
    return [one * extra, one, means]


def with_block(
    state: State,
    logits: mtf.Tensor,
    weighted: Callable[[mtf.Tensor], mtf.Tensor],
    memory_dim: str = MEMORY_LENGTH,
) -> State:
    """The state after one more block of the memory, along `memory_dim`.

    `weighted` returns the sum of the block's values, weighted by its argument.
    """
    top, total, mean = state
    new_top = mtf.maximum(top, logits.max(memory_dim))
    # Earlier sums are relative to the old maximum. `shrinking` makes them relative to the new one.
    terms, shrinking = mtf.exp(logits - new_top), mtf.exp(top - new_top)
    total = total * shrinking + terms.sum(memory_dim)
    return [new_top, total, mean * shrinking + weighted(terms)]


def finished(state: Sequence[mtf.Tensor]) -> list[mtf.Tensor]:
    """The means, and the logarithms of the sums of exponentials."""
    top, total, mean = state
    total = mtf.where(total > 0.0, total, 1.0)  # the sum of a row that sees nothing is 0
    return [mean / total, top + mtf.log(total)]


def sum_gradients(
    outputs: Sequence[mtf.Tensor], output_grads: Sequence[mtf.Tensor | None]
) -> tuple[mtf.Tensor, mtf.Tensor, mtf.Tensor]:
    """The logarithms of the sums of exponentials, and the gradients of the two `block_sums`.

    Added up over all blocks, the two sums are 1 and the mean. A softmax does not change if all logits are shifted, so
    the shift by `log_total` counts as a constant.

    Args:
      outputs: the two tensors that `finished` returned.
      output_grads: their gradients.
    """
    (mean, log_total), (dmean, dlog_total) = outputs, output_grads
    dmean = mtf.zeros_like(mean) if dmean is None else dmean
    dtotal = -(mean * dmean).sum(D_KV)
    return log_total, dtotal if dlog_total is None else dlog_total + dtotal, dmean


def block_sums(
    logits: mtf.Tensor,
    log_total: mtf.Tensor,
    weighted: Callable[[mtf.Tensor], mtf.Tensor],
    memory_dim: str = MEMORY_LENGTH,
) -> list[mtf.Tensor]:
    """The sum of exp(logits - log_total) of a block whose scores are computed again, and the sum of its values weighted
    by these exponentials.
    """
    terms = mtf.exp(logits - log_total)
    return [terms.sum(memory_dim), weighted(terms)]
