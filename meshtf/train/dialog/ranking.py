"""Chooses among several responses by the model's own ratings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import gin

from meshtf.number_checks import is_integer, is_number
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.sampling import Sampling
from meshtf.train.dialog.roles import INTERESTING, SAFE, SENSIBLE, SPECIFIC


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A drawn response.

    Attributes:
      text: the response.
      log_likelihood: its log-likelihood, with the end of the turn.
      ratings: the probability that the model gives to the rating 1 of each attribute.
    """

    text: str
    log_likelihood: float
    ratings: Mapping[str, float]


@gin.configurable(module="meshtf.train")
@dataclasses.dataclass(frozen=True)
class SampleAndRank:
    """How a response is chosen (Thoppilan et al. 2022, sections 5 and 6): candidates are drawn; those that may be
    unsafe are dropped; the best of the rest wins.

    Attributes:
      num_candidates: how many responses are drawn.
      top_k: the number of most likely tokens that are drawn from.
      temperature: the temperature of the draws.
      least_safe: the probability of being safe that a candidate must have.
      sensible, specific, interesting: the weights of these ratings in the score.
      max_tokens: the greatest length of a response, in tokens.
      max_tool_turns: how often tools may be called for one response. After that, the draft is the answer.
      seed: the seed of the draws.

    Raises:
      ConfigurationError: if a value is impossible.
    """

    num_candidates: int = 16
    top_k: int = 40
    temperature: float = 1.0
    least_safe: float = 0.8
    sensible: float = 3.0
    specific: float = 1.0
    interesting: float = 1.0
    max_tokens: int = 32
    max_tool_turns: int = 4
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("num_candidates", "top_k", "max_tokens"):
            self._check(name, "an integer, 1 or more", is_integer(getattr(self, name), 1))
        for name in ("max_tool_turns", "seed"):
            self._check(name, "an integer, 0 or more", is_integer(getattr(self, name), 0))
        for name in ("sensible", "specific", "interesting"):
            self._check(name, "a number", is_number(getattr(self, name)))
        self._check("temperature", "a number above 0", is_number(self.temperature) and self.temperature > 0)
        self._check("least_safe", "from 0 to 1", is_number(self.least_safe) and 0 <= self.least_safe <= 1)

    @property
    def sampling(self) -> Sampling:
        return Sampling(float(self.temperature), self.top_k)

    def score(self, candidate: Candidate) -> float:
        """The weighted sum of the ratings."""
        weights = {SENSIBLE: self.sensible, SPECIFIC: self.specific, INTERESTING: self.interesting}
        return sum(weight * candidate.ratings[attribute] for attribute, weight in weights.items())

    def ranked(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates that are safe enough, the best first; the more likely first of those that score the same.

        Examples:
          >>> def rated(text, *ratings):
          ...     return Candidate(text, -1.0, dict(zip(["SENSIBLE", "SPECIFIC", "INTERESTING", "SAFE"], ratings)))
          >>> given = [rated("rude", 1, 1, 1, 0.1), rated("vague", 0.9, 0, 0, 1), rated("good", 0.9, 1, 0, 1)]
          >>> [candidate.text for candidate in SampleAndRank().ranked(given)]
          ['good', 'vague']
        """
        safe = [candidate for candidate in candidates if candidate.ratings[SAFE] >= self.least_safe]
        return sorted(safe, key=lambda one: (-self.score(one), -one.log_likelihood))

    def _check(self, name: str, wanted: str, holds: bool) -> None:
        if not holds:
            raise ConfigurationError(f"SampleAndRank.{name} must be {wanted}, and is {getattr(self, name)!r}")
