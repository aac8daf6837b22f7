"""Counts how many drafted tokens a model accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from meshtf.errors import counted


class DraftCounts:
    """How much a draft has helped, over all texts so far.

    Args:
      num_tokens: how many tokens are drafted before each step of the model.
    """

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens
        self.steps = self.accepted = self.added = 0

    def add(self, found: Mapping[str, np.ndarray], prompt_lengths: Sequence[int]) -> None:
        """Counts a batch: the results of its program, of which the first rows are texts."""
        rows = len(prompt_lengths)
        self.steps += int(found["steps"][:rows].sum())
        self.accepted += int(found["accepted"][:rows].sum())
        self.added += int(found["lengths"][:rows].sum()) - sum(prompt_lengths)

    def __str__(self) -> str:
        if not self.steps:
            return "nothing was drafted"
        share = self.accepted / (self.steps * self._num_tokens)
        return (
            f"{self.added / self.steps:.2f} tokens for each step of the model: it accepted {self.accepted:,} of "
            f"{counted(self.steps * self._num_tokens, 'drafted token')} ({share:.0%})"
        )
