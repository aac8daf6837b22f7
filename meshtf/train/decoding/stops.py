"""The ends of sequences: tokens, and texts."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Callable, Sequence

import meshtf as mtf
from meshtf.field_checks import check_kinds
from meshtf.train.decoding.prompts import Prompts, is_one_of


@dataclasses.dataclass(frozen=True)
class Stops:
    """Tokens and texts that end a sequence.

    A program ends a sequence where its last added tokens are those of a text. Other tokens may spell the same text.
    So the decoded text is searched once more for the stop texts, and is cut at the first.

    Attributes:
      ids: tokens that end a sequence.
      sequences: the tokens of each text, as the vocabulary writes it by itself.
      texts: the texts.
    """

    ids: tuple[int, ...] = ()
    sequences: tuple[tuple[int, ...], ...] = ()
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_kinds(self)

    def has_ended(self, token: mtf.Tensor, before: mtf.Tensor, position: mtf.Tensor, prompts: Prompts) -> mtf.Tensor:
        """Tells which sequences a token ends: bool [..].

        Args:
          token: int32 [..], the token at `position`.
          before: int32 [.., length], the sequences; ids from `position` on do not matter.
          position: int32 [..] or a scalar, the position of each token.
          prompts: the prompts. No stop begins in one.
        """
        found = is_one_of(token, self.ids)
        for ids in self.sequences:
            is_here = mtf.equal(token, ids[-1])
            for back, wanted in enumerate(reversed(ids[:-1]), 1):
                is_here = mtf.logical_and(is_here, mtf.equal(prompts.at(position - back, before), wanted))
            starts_behind = mtf.greater_equal(position - (len(ids) - 1), prompts.lengths)
            found = mtf.logical_or(found, mtf.logical_and(is_here, starts_behind))
        return found

    def cut(self, text: str) -> str | None:
        """Returns the text before the first stop in it, or None without a stop."""
        places = [place for stop in self.texts if (place := text.find(stop)) >= 0]
        return text[: min(places)] if places else None


def shortest_with_stop(ids: Sequence[int], text_of: Callable[[Sequence[int]], str], stops: Stops) -> int:
    """Returns the least number of first ids that spell a text with a stop. All ids together must spell one."""
    return bisect.bisect_left(range(len(ids)), True, key=lambda count: stops.cut(text_of(ids[:count])) is not None)
