"""Masks: rules for which tokens see which. They are evaluated where they are needed, and never kept as a matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import meshtf as mtf
from meshtf.errors import GraphError
from meshtf.field_checks import check_kinds
from meshtf.layers.attention.tokens import Tokens, distance_ahead


@dataclasses.dataclass(frozen=True)
class AttentionMask:
    """A token sees another if every rule here allows it. Without rules, all tokens see all tokens except padding.

    Segments always count if tokens have them: a token sees its own segment, and nobody sees padding (segment 0). If
    only the memory has segments, they say what is padding.

    Attributes:
      is_causal: a token sees only its own position and those before.
      window: a token sees only tokens less than `window` positions away: itself and `window - 1` to each side.
      sees_prefix: with `is_causal`, a token also sees all of the prefix, even after it (a prefix language model).

    Examples:
      >>> window = mtf.layers.AttentionMask(is_causal=True, window=128)
      >>> tokens = mtf.layers.Tokens.along(mtf.ones(mesh, "batch:4 length:16 d_model:8"))
      >>> mtf.layers.AttentionPattern.within(tokens, window).mask
      AttentionMask(is_causal=True, window=128, sees_prefix=False)
    """

    is_causal: bool = False
    window: int | None = None
    sees_prefix: bool = False

    def __post_init__(self) -> None:
        check_kinds(self)
        if self.window is not None and self.window < 1:
            raise ValueError(f"AttentionMask: window must be at least 1 (a token sees itself), and is {self.window}")
        if self.sees_prefix and not self.is_causal:
            raise ValueError("AttentionMask: sees_prefix lifts is_causal within the prefix, but is_causal is False")

    @property
    def needs_positions(self) -> bool:
        return self.is_causal or self.window is not None

    def visible(self, query: Tokens, memory: Tokens) -> mtf.Tensor | None:
        """bool over the dimensions of the tokens, such as [batch, length, memory_length]; None where all see all.

        Raises:
          GraphError: tokens lack a field that the mask needs.
        """
        visible = None
        for rule in [*self._by_position(query, memory), *_by_segment(query, memory)]:
            visible = rule if visible is None else _combined(mtf.logical_and, visible, rule)
        return visible

    def _by_position(self, query: Tokens, memory: Tokens) -> list[mtf.Tensor]:
        if not (self.is_causal or self.window):
            return []
        if query.positions is None or memory.positions is None:
            whose = "queries have" if query.positions is None else "memory has"
            raise GraphError(f"{self} compares positions, but the {whose} none; give Tokens(positions=..)")
        ahead = distance_ahead(query.positions, memory.positions)
        rules = [self._not_ahead(ahead, memory)] if self.is_causal else []
        if self.window is not None:
            rules.append(ahead > -self.window)
            # A causal mask already hides all that is ahead, except the prefix.
            if not self.is_causal or self.sees_prefix:
                rules.append(ahead < self.window)
        return rules

    def _not_ahead(self, ahead: mtf.Tensor, memory: Tokens) -> mtf.Tensor:
        if not self.sees_prefix:
            return ahead <= 0
        if memory.is_prefix is None:
            raise GraphError(f"{self} must know which tokens are a prefix; give Tokens(is_prefix=..) of the memory")
        return _combined(mtf.logical_or, ahead <= 0, mtf.not_equal(memory.is_prefix, 0))


def check_segments(query: Tokens, memory: Tokens) -> None:
    """Checks that the memory has segments if the queries have.

    Raises:
      GraphError: it has none.
    """
    if memory.segments is None and query.segments is not None:
        raise GraphError("the queries have segments and the memory has none; give both, or the memory alone")


def _by_segment(query: Tokens, memory: Tokens) -> list[mtf.Tensor]:
    check_segments(query, memory)
    if memory.segments is None:
        return []
    is_there = mtf.not_equal(memory.segments, 0)
    return [is_there] if query.segments is None else [mtf.equal(query.segments, memory.segments), is_there]


def _combined(fn: Callable[..., mtf.Tensor], visible: mtf.Tensor, rule: mtf.Tensor) -> mtf.Tensor:
    """Both rules, or either, with `length` and `memory_length` last, as in scores."""
    shape = mtf.Shape([*(d for d in rule.shape if not visible.shape.has(d)), *visible.shape])
    return fn(visible, rule, output_shape=shape)
