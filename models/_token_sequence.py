"""Sequences of ids among a program's features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import meshtf as mtf
from meshtf.layers.attention import Tokens
from meshtf.models._features import feature


@dataclasses.dataclass(frozen=True)
class TokenSequence:
    """Ids, with their positions and segments.

    Attributes:
      ids: int32 [batch, length].
      positions: int32 [batch, length], from 0 in each packed example; or [length], if nothing is packed.
      segments: int32 [batch, length], 0 for padding, else the number of the example, from 1; None if all see all.
    """

    ids: mtf.Tensor
    positions: mtf.Tensor
    segments: mtf.Tensor | None

    @classmethod
    def of(cls, features: Mapping[str, mtf.Tensor], name: str) -> TokenSequence:
        """The features `<name>`, `<name>_position` and `<name>_segmentation`. The last two are optional.

        Raises:
          GraphError: there is no feature of this name.
        """
        ids = feature(features, name)
        positions = features.get(f"{name}_position")
        if positions is None:
            positions = mtf.range(ids.shape["length"])
        return cls(ids, positions, features.get(f"{name}_segmentation"))

    @property
    def tokens(self) -> Tokens:
        """The tokens for attention, with their index along `length` as position.

        Within a segment, the distance of two tokens is the same by index and by position.
        """
        return Tokens.along(self.ids, self.segments)

    def unpadded_tokens(self, padding_id: int) -> Tokens:
        """The tokens for attention that is not causal.

        Without segments, all tokens except padding are one segment.
        """
        segments = mtf.to_int32(mtf.not_equal(self.ids, padding_id)) if self.segments is None else self.segments
        return Tokens.along(self.ids, segments)

    def shifted_right(self, start_id: int) -> mtf.Tensor:
        """The token before each one in its example, or `start_id` before the first: int32 [batch, length]."""
        before = shifted_right(self.ids, start_id)
        return before if self.segments is None else mtf.where(_is_within(self.segments), before, start_id)

    def have_one_before(self) -> mtf.Tensor:
        """Whether there is a token before each one in its example: bool [batch, length], or [length]."""
        is_later = self.positions > 0
        if self.segments is None:
            return is_later
        return mtf.logical_and(_is_within(self.segments), is_later, output_shape=self.ids.shape)


def _is_within(segments: mtf.Tensor) -> mtf.Tensor:
    """Whether each place is in the segment of the place before it: bool [batch, length]."""
    return mtf.equal(mtf.shift(segments, 1, "length", wrap=False), segments)


def shifted_right(ids: mtf.Tensor, start_id: int | mtf.Tensor) -> mtf.Tensor:
    """Ids [.., length], shifted one place to the right, with `start_id` (a number or [..]) in the first place."""
    length = ids.shape["length"]
    before = mtf.shift(ids, 1, length, wrap=False)
    if isinstance(start_id, int) and not start_id:
        return before
    return mtf.where(mtf.equal(mtf.range(length), 0), start_id, before, output_shape=ids.shape)
