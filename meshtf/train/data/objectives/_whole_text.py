"""The common part of objectives whose sequences are the text itself, token by token."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.train.data.objectives.objective import TruncationSide


class WholeText:
    """A document is one text, and each sequence has its length."""

    @property
    def num_parts(self) -> int:
        return 1

    @property
    def keeps_length(self) -> bool:
        return True

    @property
    def truncation_sides(self) -> tuple[TruncationSide, ...]:
        return ("right",)

    def parts(self, document: str) -> tuple[str, ...]:
        return (document,)

    def lengths(self, part_lengths: Sequence[int]) -> tuple[int, ...]:
        return tuple(part_lengths)

    def limits(self, sizes: Sequence[int]) -> tuple[int, ...]:
        return tuple(sizes)
