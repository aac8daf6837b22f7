"""Attention that computes the whole matrix of scores at once."""

from __future__ import annotations

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.layers.attention._scores import attend, check_operands
from meshtf.layers.attention.options import DEFAULT_OPTIONS, AttentionOptions
from meshtf.layers.attention.pattern import AttentionPattern
from meshtf.layers.attention.tokens import MEMORY_LENGTH


@language_function
def dot_product_attention(
    q: mtf.Tensor,
    k: mtf.Tensor,
    v: mtf.Tensor,
    pattern: AttentionPattern,
    options: AttentionOptions = DEFAULT_OPTIONS,
    *,
    is_training: bool = False,
) -> mtf.Tensor:
    """Means of values, weighted by the softmax of q . k + bias over the visible tokens (Vaswani et al. 2017).

    The function does not scale logits: `project_queries` scales the queries.

    Args:
      q: [.., length, heads, (queries_per_head), d_kv]; without `length` in a step of decoding.
      k: [.., memory_length, heads, d_kv]; without `heads` for one memory head, shared by all queries.
      v: the same.
      pattern: who sees whom, and the bias.
      options: dropout, precision, an extra logit.
      is_training: whether weights are dropped.

    Returns:
      The dimensions and the type of q. A row that sees nothing is 0, and has no gradient.

    Raises:
      ShapeError: dimensions are missing, misspelt, or of other sizes.
      DtypeError: q, k and v are not floating, or differ.
      GraphError: the tokens lack a field that the mask or the bias needs.

    Examples:
      >>> config = mtf.layers.AttentionConfig(num_heads=2, d_kv=4)
      >>> h = mtf.ones(mesh, "batch:4 length:16 d_model:8")
      >>> q, (k, v) = mtf.layers.project_queries(h, config), mtf.layers.project_keys_and_values(h, config)
      >>> causal = mtf.layers.AttentionMask(is_causal=True)
      >>> pattern = mtf.layers.AttentionPattern.within(mtf.layers.Tokens.along(h), causal)
      >>> mtf.layers.dot_product_attention(q, k, v, pattern).shape
      Shape[batch:4 length:16 heads:2 d_kv:4]
    """
    check_operands(q, k, v, MEMORY_LENGTH)
    return attend(q, k, v, pattern, options.in_mode(is_training), MEMORY_LENGTH)
