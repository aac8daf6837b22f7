"""The weights that dropout keeps, for scores that are made block by block: the same as for the whole matrix."""

from __future__ import annotations

import meshtf as mtf
from meshtf.layers.attention._scores import logits_shape
from meshtf.layers.attention.options import DROPOUT, AttentionOptions
from meshtf.layers.attention.tokens import LENGTH, MEMORY_LENGTH


def is_independent(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions) -> bool:
    """Whether dropout decides for each weight by itself, along queries and memory."""
    if not options.dropout_rate:
        return False
    noise_shape = noise_shape_of(q, k, options)
    return noise_shape.has(LENGTH) and noise_shape.has(MEMORY_LENGTH)


def kept_weights(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions) -> mtf.Tensor | None:
    """bool: the weights that are kept, drawn at once as dropout of the whole matrix draws them; None if all are."""
    if not options.dropout_rate:
        return None
    ones = mtf.ones(q.mesh, noise_shape_of(q, k, options))
    return mtf.dropout(ones, True, rate=options.dropout_rate, name=DROPOUT) > 0.0


def noise_shape_of(q: mtf.Tensor, k: mtf.Tensor, options: AttentionOptions) -> mtf.Shape:
    """The dimensions along which weights are dropped independently."""
    return options.noise_shape(logits_shape(q.shape, k.shape, MEMORY_LENGTH))


def without_dropped(terms: mtf.Tensor, kept: mtf.Tensor | None, rate: float) -> mtf.Tensor:
    """The terms, with 0 for those that are not kept, and the others scaled up by 1 / (1 - rate).

    `kept` is None if all are.
    """
    if kept is None:
        return terms
    return mtf.where(kept, terms * (1.0 / (1.0 - rate)), 0.0, output_shape=terms.shape)
