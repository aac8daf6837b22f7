"""Finds the passages of a local text that fit a query best."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from pathlib import Path

from meshtf.field_checks import check_kinds
from meshtf.train.configuration import ConfigurationError
from meshtf.train.decoding.prompt_text import TextsOfFiles

_WORD = re.compile(r"\w+")


@dataclasses.dataclass(frozen=True)
class Retrieval:
    """A `Tool` that ranks passages by Okapi BM25 (Robertson et al. 1994), with the usual constants k1 and b.

    A passage that shares no word with the query is no answer. The earlier of two passages with equal scores
    comes first.

    Attributes:
      passages: the passages.
      num_answers: how many passages are returned at most.
      k1: how soon a word's further occurrences count less.
      b: how much long passages are scored lower, from 0 to 1.

    Raises:
      ConfigurationError: if a number is out of its range.

    Examples:
      >>> Retrieval(["vera ford keeps bees .", "omar bell keeps goats .", "rain falls ."]).answers("what keeps vera")
      ['vera ford keeps bees .']
    """

    passages: Sequence[str]
    num_answers: int = 1
    k1: float = 1.2
    b: float = 0.75
    name: str = dataclasses.field(default="retrieval", init=False)

    def __post_init__(self) -> None:
        check_kinds(self, ConfigurationError)
        if self.num_answers < 1 or self.k1 < 0 or not 0 <= self.b <= 1:
            raise ConfigurationError(
                f"Retrieval needs num_answers of 1 or more, k1 of 0 or more, and b from 0 to 1; they are "
                f"{self.num_answers}, {self.k1} and {self.b}"
            )

    @classmethod
    def of_files(cls, paths: Sequence[Path]) -> Retrieval:
        """Takes each line of some files as a passage.

        Raises:
          ConfigurationError: if a file cannot be read, or is not text.
        """
        return cls([text.text for text in TextsOfFiles(paths) if text.text.strip()])

    def answers(self, query: str) -> list[str]:
        scores = self.scores(query)
        best = sorted(scores, key=lambda passage: (-scores[passage], passage))
        return [self.passages[passage] for passage in best[: self.num_answers]]

    def scores(self, query: str) -> dict[int, float]:
        """The score of each passage that has a word of the query, by its number."""
        total: dict[int, float] = collections.defaultdict(float)
        count, lengths = len(self.passages), self._lengths
        mean_length = sum(lengths) / max(count, 1)
        for word in words_of(query):
            found = self._occurrences.get(word, {})
            rarity = math.log(1 + (count - len(found) + 0.5) / (len(found) + 0.5))
            for passage, times in found.items():
                penalty = self.k1 * (1 - self.b + self.b * lengths[passage] / mean_length)
                total[passage] += rarity * times * (self.k1 + 1) / (times + penalty)
        return dict(total)

    @functools.cached_property
    def _lengths(self) -> list[int]:
        return [len(words_of(passage)) for passage in self.passages]

    @functools.cached_property
    def _occurrences(self) -> dict[str, dict[int, int]]:
        """How often each word is in each passage that has it."""
        found: dict[str, dict[int, int]] = {}
        for number, passage in enumerate(self.passages):
            for word, times in collections.Counter(words_of(passage)).items():
                found.setdefault(word, {})[number] = times
        return found


def words_of(text: str) -> list[str]:
    """The words of a text in lower case."""
    return _WORD.findall(text.casefold())
