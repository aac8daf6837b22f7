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
        """Counts a batch by the results of its program. Their first rows are the texts."""
        rows = len(prompt_lengths)
        self.steps += int(found["steps"][:rows].sum())
        self.accepted += int(found["accepted"][:rows].sum())
        self.added += int(found["lengths"][:rows].sum()) - sum(prompt_lengths)

    @property
    def tokens_per_step(self) -> float:
        """The number of tokens that a step of the model adds to a text. Without a draft it is 1."""
        return self.added / max(self.steps, 1)

    @property
    def share(self) -> float:
        """The share of drafted tokens that are accepted."""
        return self.accepted / max(self.num_drafted, 1)

    @property
    def num_drafted(self) -> int:
        """The number of drafted tokens."""
        return self.steps * self._num_tokens

    def __str__(self) -> str:
        return (
            f"{self.tokens_per_step:.2f} tokens for each step of the model, which accepted {self.accepted:,} of "
            f"{counted(self.num_drafted, 'drafted token')} ({self.share:.0%})"
        )
