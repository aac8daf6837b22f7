"""Prompts whose own first token is the first that a model sees."""

from __future__ import annotations

import dataclasses

import meshtf as mtf
from meshtf.train.decoding.prompts import Prompts
from meshtf.train.decoding.sequences import Sequences


@dataclasses.dataclass(frozen=True)
class BegunPrompts:
    """Prompts, divided into the first token, which a decoder has at the start, and the rest.

    Attributes:
      start: int32 [batch], the first token of each prompt, or another id for an empty prompt.
      rest: the prompts without these tokens.
      is_taken: bool [batch], whether the start is a token of the prompt.
    """

    start: mtf.Tensor
    rest: Prompts
    is_taken: mtf.Tensor

    @classmethod
    def of(cls, prompts: Prompts, start_id: int) -> BegunPrompts:
        """Divides prompts. `start_id` is the start of an empty prompt."""
        ids, lengths, length = prompts.ids, prompts.lengths, prompts.length
        is_taken = mtf.greater(lengths, 0)
        taken = mtf.cast(is_taken, lengths.dtype)
        first = mtf.gather(ids, mtf.constant(ids.mesh, 0, [], ids.dtype), length)
        behind = mtf.where(is_taken, mtf.shift(ids, -1, length, wrap=False), ids, output_shape=ids.shape)
        rest = Prompts(behind, lengths - taken, prompts.ends - taken, prompts.longest)
        return cls(mtf.where(is_taken, first, start_id), rest, is_taken)

    def whole(self, found: Sequences) -> Sequences:
        """Returns sequences that continue the rest, with the first tokens of the prompts put back."""
        ids, length = found.ids, self.rest.length

        def moved(x: mtf.Tensor, first: mtf.Tensor | float) -> mtf.Tensor:
            """x [.., length, ..] with `first` before it, where the start is a token of the prompt."""
            is_first = mtf.equal(mtf.range(ids.mesh, length), 0)
            begun = mtf.where(is_first, first, mtf.shift(x, 1, length, wrap=False), output_shape=x.shape)
            return mtf.where(self.is_taken, begun, x, output_shape=x.shape)

        return dataclasses.replace(
            found,
            ids=moved(ids, self.start),
            lengths=found.lengths + mtf.cast(self.is_taken, found.lengths.dtype),
            tokens=None if found.tokens is None else found.tokens.map(lambda x: mtf.cast(moved(x, 0), x.dtype)),
        )
