"""The forms that requests require of their texts, such as JSON by a schema."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import threading
from collections.abc import Iterator, Sequence

import numpy as np

from meshtf.serving.engine import EngineFailedError, RequestError
from meshtf.train.data.vocabularies.vocabulary import Vocabulary
from meshtf.train.decoding.forms.constraints import REGEX, Constraint, ConstraintError, TextRules, TokenRules

_KEPT, _KEPT_CHARACTERS = 64, 1 << 20
"""The largest number of cached forms, and of characters in their texts. Their memory grows with the characters."""
_WORD_BITS = 32

_ANY = Constraint(REGEX, "a")
"""A trivial form. Compiling it makes the library read the vocabulary, once for all forms."""

FIELD = "constraint"
"""The field of `GenerationRequest` that holds the form."""

_Compiled = concurrent.futures.Future[TokenRules | str]

_LONGEST = 200
_WRONG = "cannot be used: {told}"
_NOT_ALLOWED = "the model chose a token that the form does not allow, as happens when logits are NaN"


class Form:
    """One text's form, and the tokens that may come next in it.

    Attributes:
      words: int32 [words], the tokens that may come next, 32 to a word, the lowest bit first.

    Raises:
      RequestError: if no token may come next, or if finding them takes too long. `add` raises it as well.
    """

    def __init__(self, rules: TextRules) -> None:
        self._rules = rules
        with _refusals():
            self.words = packed_words(rules.allowed())

    def ends_with(self, token: int) -> bool:
        """Tells whether a token ends the text."""
        return token in self._rules.end_ids

    def add(self, token: int) -> None:
        """Adds a token that does not end the text.

        Raises:
          EngineFailedError: if the token is not allowed.
        """
        if not self.words[token // _WORD_BITS] >> token % _WORD_BITS & 1:
            raise EngineFailedError(_NOT_ALLOWED)
        with _refusals():
            self._rules.add(token)
            self.words = packed_words(self._rules.allowed())


class Forms:
    """Compiles the forms of requests, and begins texts in them. Any thread may call it.

    The latest forms are cached, since requests repeat them. Forms that cannot be used are cached as well. If several
    threads need the same new form, the first one compiles it and the others wait. Other threads do not wait.

    Args:
      vocabulary: the vocabulary of texts.
      seconds: the time that a form may take to compile.
    """

    def __init__(self, vocabulary: Vocabulary, seconds: float) -> None:
        self._vocabulary, self._seconds = vocabulary, seconds
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._kept: collections.OrderedDict[Constraint, _Compiled] = collections.OrderedDict()
        self._of_vocabulary: TokenRules | None = None

    def begin(self, constraint: Constraint, stop_ids: Sequence[int]) -> Form:
        """Returns the form of one text, before its first token.

        Raises:
          RequestError: if the constraint is wrong or too large, takes too long, or the library for it is missing.
        """
        rules = self._rules_of(constraint)
        if isinstance(rules, str):
            raise RequestError(_WRONG.format(told=rules), FIELD)
        return Form(rules.begin(stop_ids))

    def _rules_of(self, constraint: Constraint) -> TokenRules | str:
        """Returns the rules of a form, or the reason why it cannot be used."""
        with self._lock:
            kept = self._kept.get(constraint)
            is_new = kept is None
            if kept is None:
                kept = self._kept[constraint] = concurrent.futures.Future()
            self._kept.move_to_end(constraint)
            self._forget()
        if is_new:
            try:
                kept.set_result(self._compiled(constraint))
            except BaseException as error:  # such as too little memory, which a later request may not meet
                with self._lock:
                    if self._kept.get(constraint) is kept:
                        del self._kept[constraint]
                kept.set_exception(error)
        return kept.result()

    def _compiled(self, constraint: Constraint) -> TokenRules | str:
        try:
            with self._reading:
                if self._of_vocabulary is None:
                    self._of_vocabulary = TokenRules(_ANY, self._vocabulary)
            return TokenRules(constraint, self._vocabulary, self._of_vocabulary, self._seconds)
        except ConstraintError as error:
            return _sentence(error)

    def _forget(self) -> None:
        """Keeps the latest forms, and the last one in any case."""
        size = sum(len(each.text) for each in self._kept)
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or size > _KEPT_CHARACTERS):
            size -= len(self._kept.popitem(last=False)[0].text)


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns an error of a constraint into one of its request."""
    try:
        yield
    except ConstraintError as error:
        raise RequestError(_WRONG.format(told=_sentence(error)), FIELD) from None


def _sentence(error: ConstraintError) -> str:
    """The first line of the library's message. Further lines are a dump of the form."""
    return error.told.splitlines()[0][:_LONGEST]


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
