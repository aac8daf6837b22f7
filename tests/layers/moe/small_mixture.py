"""A mixture of experts of the size for tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import meshtf as mtf
from meshtf.layers.attention import AttentionMask, Tokens
from meshtf.layers.moe import MixtureOfExperts
from meshtf.layers.transformer import Context
from meshtf.testing import FUNCTION_TERMS

BATCH, LENGTH, D_MODEL = mtf.Dimension("batch", 8), mtf.Dimension("length", 6), mtf.Dimension("d_model", 4)
TOKENS = mtf.Shape([BATCH, LENGTH])
TERMS = (D_MODEL.size, 4 + 2 * FUNCTION_TERMS, D_MODEL.size, 8, 2)
"""Roundings of a mixture of at most four experts of width 8: the router's logits, gates and the sum of those chosen, an
expert's two products, the sum of two experts."""

ON_TWO_BY_TWO = [
    "batch:rows;experts:rows",
    "batch:rows+cols;experts:cols;groups:rows",
    "batch:rows+cols;experts:rows+cols",
    "batch:rows;experts:rows;d_ff:cols",
    "batch:rows;groups:rows;experts:cols;slots:cols",
    "batch:rows;experts:rows;d_model:cols",
]
"""On one axis, on another than groups keep, on two; with the experts' own products split; as a sum."""


def segments() -> np.ndarray:
    """int32 [batch, length]: two examples in each row, then padding; the last row is nothing but padding."""
    found = np.zeros(TOKENS.to_integer_list, np.int32)
    for row in range(BATCH.size - 1):
        found[row, :3], found[row, 3 : LENGTH.size - row % 3] = 1, 2
    return found


def observed(
    layer: MixtureOfExperts, *, is_training: bool = False
) -> Callable[..., tuple[mtf.Tensor, dict[str, mtf.Tensor]]]:
    """The layer as a function of x and, perhaps, segments."""

    def mixture(x: mtf.Tensor, segments: mtf.Tensor | None = None) -> tuple[mtf.Tensor, dict[str, mtf.Tensor]]:
        context = Context(AttentionMask(), Tokens(segments=segments), is_training=is_training)
        y, seen = layer.observed(x, context)
        return y, dict(seen)

    return mixture


def with_loss(layer: MixtureOfExperts, *, is_training: bool = False) -> Callable[..., Sequence[mtf.Tensor]]:
    """What the experts give, and the auxiliary loss."""

    def mixture(**inputs: mtf.Tensor) -> Sequence[mtf.Tensor]:
        y, seen = observed(layer, is_training=is_training)(**inputs)
        return y, seen["auxiliary_loss"]

    return mixture
