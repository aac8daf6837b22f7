"""Brings tokens to the places of experts and back, by index or as products with a mask. Both give the same numbers."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import gin

import meshtf as mtf
from meshtf.layers.moe._slots import Slots
from meshtf.layers.moe.token_groups import TOKENS


class Dispatch(Protocol):
    """Brings tokens to slots and back, each group by itself. It never communicates if groups are split."""

    def to_slots(self, x: mtf.Tensor, slots: Slots) -> mtf.Tensor:
        """[.., group, tokens, d_model] -> [.., group, slots, d_model], with zeros in empty places."""
        ...

    def to_tokens(self, y: mtf.Tensor, slots: Slots, tokens: mtf.Dimension) -> mtf.Tensor:
        """[.., group, slots, d_model] -> [.., group, tokens, d_model], the weighted sum of each token's slots."""
        ...


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class GatherDispatch:
    """Dispatch by index: it touches no more numbers than the slots have."""

    def to_slots(self, x: mtf.Tensor, slots: Slots) -> mtf.Tensor:
        return x[TOKENS, slots.tokens]

    def to_tokens(self, y: mtf.Tensor, slots: Slots, tokens: mtf.Dimension) -> mtf.Tensor:
        # A token without a slot gets no term and stays zero. Empty slots have the token -1, which the scatter ignores.
        weighted = y * slots.weights.astype(y.dtype)
        nothing = mtf.zeros(y.mesh, [*y.shape[:-2], tokens, y.shape[-1]], y.dtype)
        return mtf.scatter_add(nothing, slots.tokens, weighted, tokens)


@gin.configurable(module="meshtf.layers")
@dataclasses.dataclass(frozen=True)
class ProductDispatch:
    """Dispatch by products with a mask [.., group, slots, tokens], as in GShard. It is quadratic in a group's tokens.

    It is for devices on which lookups by index are slow and products are not.
    """

    def to_slots(self, x: mtf.Tensor, slots: Slots) -> mtf.Tensor:
        tokens = x.shape[TOKENS]
        # The row of an empty slot, with the token -1, is all zeros.
        mask = mtf.one_hot(slots.tokens, tokens, dtype=x.dtype)
        return mtf.einsum([mask, x], output_shape=slots.tokens.shape + x.shape[-1:])

    def to_tokens(self, y: mtf.Tensor, slots: Slots, tokens: mtf.Dimension) -> mtf.Tensor:
        mask = mtf.one_hot(slots.tokens, tokens, dtype=y.dtype) * slots.weights.astype(y.dtype)
        return mtf.einsum([mask, y], output_shape=[*y.shape[:-2], tokens, y.shape[-1]])
