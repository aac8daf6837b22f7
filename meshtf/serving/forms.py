"""The forms that requests ask for: JSON by a schema, for example."""

from __future__ import annotations

import collections
import threading
from collections.abc import Sequence

import numpy as np

from meshtf.serving.engine import RequestError
from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.forms.constraints import Constraint, ConstraintError, TextRules, TokenRules

_KEPT = 64
_WORD_BITS = 32


class Form:
    """One text's form, and the tokens that may come next in it.

    Attributes:
      words: int32 [words], the tokens that may come next, 32 to a word, the lowest bit first.

    Raises:
      ConfigurationError: if no token may come. So does `add`.
    """

    def __init__(self, rules: TextRules) -> None:
        self._rules = rules
        self.words = packed_words(rules.allowed())

    def ends_with(self, token: int) -> bool:
        """Tells whether a token ends the text."""
        return token in self._rules.end_ids

    def add(self, token: int) -> None:
        """Adds a token that is allowed, and is no end."""
        self._rules.add(token)
        self.words = packed_words(self._rules.allowed())


class Forms:
    """Begins texts of the forms that requests ask for. The latest forms are kept, since requests repeat them."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary, self._lock = vocabulary, threading.Lock()
        self._rules: collections.OrderedDict[Constraint, TokenRules] = collections.OrderedDict()

    def begin(self, constraint: Constraint, stop_ids: Sequence[int]) -> Form:
        """Returns the form of one text, before its first token.

        Raises:
          RequestError: if the constraint is wrong, or the library for it is missing.
        """
        try:
            return Form(self._rules_of(constraint).begin(stop_ids))
        except ConstraintError as error:
            raise RequestError(f"the form of the text cannot be used: {error.told}") from None
        except ConfigurationError as error:
            raise RequestError(str(error)) from None

    def _rules_of(self, constraint: Constraint) -> TokenRules:
        with self._lock:
            if constraint not in self._rules:
                earlier = next(iter(self._rules.values()), None)
                self._rules[constraint] = TokenRules(constraint, self._vocabulary, earlier)
            self._rules.move_to_end(constraint)
            while len(self._rules) > _KEPT:
                self._rules.popitem(last=False)
            return self._rules[constraint]


def num_words(vocab_size: int) -> int:
    """Returns the number of words with a bit for each token."""
    return -(-vocab_size // _WORD_BITS)


def packed_words(allowed: np.ndarray) -> np.ndarray:
    """Returns bool [vocab] as int32 [words], the lowest bit first.

    Examples:
      >>> packed_words(np.array([True, False, True])), packed_words(np.ones(33, bool))
      (array([5], dtype=int32), array([-1,  1], dtype=int32))
    """
    padded = np.zeros(num_words(len(allowed)) * _WORD_BITS, bool)
    padded[: len(allowed)] = allowed
    return np.packbits(padded, bitorder="little").view("<i4").astype(np.int32)
