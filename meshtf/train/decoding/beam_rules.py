"""How a beam search scores sequences, and when it ends."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import meshtf as mtf
from meshtf.field_checks import check, check_kinds, check_not_negative


class BeamRules(Protocol):
    """Scores sequences, and decides whether a search ends before all sequences reach their greatest length."""

    @property
    def counts_leading_ends(self) -> bool:
        """Whether an end counts only where it is among the best `beam_size` continuations of a step."""
        ...

    @property
    def ends_when_full(self) -> bool:
        """Whether a search ends as soon as `beam_size` sequences are finished."""
        ...

    def score(self, log_likelihoods: mtf.Tensor, added: mtf.Tensor) -> mtf.Tensor:
        """The scores of sequences to which `added` tokens were added; `added` is float32, 1 or more."""
        ...

    def hoped_for(self, log_likelihoods: mtf.Tensor, added: mtf.Tensor, most: mtf.Tensor) -> mtf.Tensor:
        """The best score that an open sequence is assumed to reach.

        A search ends when this is not above the worst score of `beam_size` finished sequences.

        Args:
          log_likelihoods: the log-likelihoods of the best open sequences so far.
          added: the number of tokens added so far.
          most: the greatest number of tokens that can be added.
        """
        ...


@dataclasses.dataclass(frozen=True)
class GnmtRules:
    """Scores with the length penalty of GNMT: log-likelihood / ((5 + n) / 6) ** alpha (Wu et al. 2016).

    A search ends when no open sequence can get a better score than those that are finished.

    Attributes:
      alpha: the exponent of the length penalty, 0 or more; 0 ranks by log-likelihood.
    """

    alpha: float
    counts_leading_ends: bool = dataclasses.field(default=False, init=False)
    ends_when_full: bool = dataclasses.field(default=False, init=False)

    def __post_init__(self) -> None:
        check_kinds(self)
        check_not_negative(self, "alpha")

    def score(self, log_likelihoods: mtf.Tensor, added: mtf.Tensor) -> mtf.Tensor:
        return log_likelihoods / mtf.pow((added + 5.0) * (1.0 / 6.0), self.alpha)

    def hoped_for(self, log_likelihoods: mtf.Tensor, added: mtf.Tensor, most: mtf.Tensor) -> mtf.Tensor:
        return self.score(log_likelihoods, most)


@dataclasses.dataclass(frozen=True)
class TransformersRules:
    """The rules of Hugging Face's Transformers: scores are log-likelihood / n ** length_penalty.

    Attributes:
      length_penalty: the exponent of the length, of any sign; more favours longer sequences.
      early_stopping: the rule by which a search ends. True ends it when `beam_size` sequences are finished. False ends
        it when the best open sequence, scored at its present length, is not above the worst finished one. The value
        "never" ends it when that sequence could not get above it at its greatest length either.
    """

    length_penalty: float = 1.0
    early_stopping: bool | str = False
    counts_leading_ends: bool = dataclasses.field(default=True, init=False)

    def __post_init__(self) -> None:
        check_kinds(self)
        check(self, "early_stopping", self.early_stopping in (True, False, "never"), 'True, False or "never"')

    @property
    def ends_when_full(self) -> bool:
        return self.early_stopping is True

    def score(self, log_likelihoods: mtf.Tensor, added: mtf.Tensor) -> mtf.Tensor:
        return log_likelihoods / mtf.pow(added, self.length_penalty)

    def hoped_for(self, log_likelihoods: mtf.Tensor, added: mtf.Tensor, most: mtf.Tensor) -> mtf.Tensor:
        is_far = self.early_stopping == "never" and self.length_penalty > 0
        return self.score(log_likelihoods, most if is_far else added)
