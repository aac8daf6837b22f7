"""Constrains added text by a JSON schema, a grammar or a regular expression, with the library llguidance."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from meshtf.train.configuration import ConfigurationError
from meshtf.train.data.vocabularies.byte_vocabulary import FIRST_BYTE, ByteVocabulary
from meshtf.train.data.vocabularies.vocabulary import Vocabulary, inner_ids
from meshtf.train.decoding.forms.trial import why_not_compiled

JSON_SCHEMA, GRAMMAR, REGEX = "json_schema", "grammar", "regex"

MOST_SECONDS = 60.0
"""The time that a constraint may take to compile, by default."""

_NO_LIBRARY = "llguidance is missing (pip install 'meshtf[constrained]')"

_WRONG = """\
Decoding.{kind} cannot be used: {told}"""

_DEAD_END = """\
no token of the vocabulary continues {text!r} in this form. The vocabulary lacks a token for a character of it; \
tokens that are only a part of a character are never chosen."""


@dataclasses.dataclass(frozen=True)
class Constraint:
    """The form that added text must have.

    Attributes:
      kind: "json_schema", "grammar" (of Lark's form, as llguidance reads it), or "regex".
      text: the schema, the grammar, or the regular expression itself.
    """

    kind: str
    text: str


class ConstraintError(ConfigurationError):
    """A constraint that cannot be used.

    Attributes:
      told: the reason, without the constraint's name.
    """

    def __init__(self, constraint: Constraint, told: str) -> None:
        super().__init__(_WRONG.format(kind=constraint.kind, told=told))
        self.told = told


class TokenRules:
    """Tells which tokens may come next, on the host. One serves all texts of a vocabulary and a constraint.

    Args:
      constraint: the form of the text.
      vocabulary: the vocabulary of its tokens.
      earlier: rules of the same vocabulary, from which it is taken. So the library reads it only once.
      seconds: the time that the constraint may take to compile.

    Raises:
      ConstraintError: if the constraint is wrong, or takes longer, or the library is missing.
    """

    def __init__(
        self,
        constraint: Constraint,
        vocabulary: Vocabulary,
        earlier: TokenRules | None = None,
        seconds: float = MOST_SECONDS,
    ) -> None:
        try:
            import llguidance
        except ImportError:
            raise ConstraintError(constraint, _NO_LIBRARY) from None
        self._library: Any = llguidance
        self.constraint, self.vocabulary = constraint, vocabulary
        matcher = self._library.LLMatcher
        make = {
            JSON_SCHEMA: matcher.grammar_from_json_schema,
            GRAMMAR: matcher.grammar_from_lark,
            REGEX: matcher.grammar_from_regex,
        }[constraint.kind]
        if constraint.kind == JSON_SCHEMA:
            _check_is_json(constraint)
        try:
            self._grammar = make(constraint.text)
            self._tokenizer, self.is_known = self._read_vocabulary() if earlier is None else earlier.known_vocabulary
        except ValueError as error:
            raise ConstraintError(constraint, str(error)) from None
        if told := why_not_compiled(self._grammar, seconds):
            raise ConstraintError(constraint, told)
        self._start = self._new()

    @property
    def known_vocabulary(self) -> tuple[Any, np.ndarray]:
        """The vocabulary as the library has read it, and the tokens that it knows, bool [vocab]."""
        return self._tokenizer, self.is_known

    def _read_vocabulary(self) -> tuple[Any, np.ndarray]:
        tokenizer = _Tokenizer(self.vocabulary)
        # A forced text is encoded as a whole, so the library may also ask for a token without bytes.
        is_known = np.array([bool(x) for x in tokenizer.tokens])
        is_known[self.vocabulary.end_id] = True
        return self._library.LLTokenizer(self._library.TokenizerWrapper(tokenizer)), is_known

    def begin(self, stop_ids: Sequence[int] = ()) -> TextRules:
        """Returns the rules of one text, before its first token.

        `stop_ids`: tokens that end it. One that stands for no text may come where the text is complete. One beyond the
        vocabulary never comes.
        """
        end, size = self.vocabulary.end_id, len(self.is_known)
        ends = [end, *(i for i in stop_ids if i != end and i < size and not self.is_known[i])]
        return TextRules(self, self._start.deep_copy(), ends)

    def _new(self) -> Any:
        matcher = self._library.LLMatcher(self._tokenizer, self._grammar, log_level=0)
        if told := matcher.get_error().strip():
            raise ConstraintError(self.constraint, told)
        return matcher


def _check_is_json(constraint: Constraint) -> None:
    """Raises a ConstraintError with the place of a mistake in the text. The library counts from a text of its own."""
    try:
        json.loads(constraint.text)
    except json.JSONDecodeError as error:
        raise ConstraintError(constraint, f"it is not JSON: {error}") from None
    except (RecursionError, ValueError):  # too deep, or too many digits: the library has bounds of its own
        pass


class TextRules:
    """The tokens that may come next in one text.

    Attributes:
      end_ids: the tokens that end the text, and may come only where it is complete.
    """

    def __init__(self, rules: TokenRules, matcher: Any, end_ids: Sequence[int]) -> None:
        self._rules, self._matcher, self._added = rules, matcher, list[int]()
        self.end_ids = list(end_ids)

    def allowed(self) -> np.ndarray:
        """Returns whether each token may come next, bool [vocab]. The end may come where the text is complete.

        Raises:
          ConstraintError: if no token may, or if the library has given up, for example because a form takes too long.
        """
        self._check()
        is_whole = self._matcher.is_accepting()
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        found = bits[: self._rules.vocabulary.size].astype(bool) & self._rules.is_known
        if not is_whole:  # where nothing can follow, the library lets a text end
            found[self._rules.vocabulary.end_id] = False
        found[self.end_ids] = found[self._rules.vocabulary.end_id]
        if not found.any():
            text = self._rules.vocabulary.decode(self._added)
            raise ConstraintError(self._rules.constraint, _DEAD_END.format(text=text))
        return found

    def add(self, token: int) -> None:
        """Adds a token that is allowed, and is not an end.

        Raises:
          ConstraintError: if the token is not allowed, for example after NaN logits, or if the library has given up.
        """
        self._added.append(token)
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if told := self._matcher.get_error().strip():
            raise ConstraintError(self._rules.constraint, told.splitlines()[0])


def token_bytes(vocabulary: Vocabulary) -> list[bytes]:
    """Returns the bytes that each token stands for inside a text.

    A token that stands for parts of characters has none, except in a vocabulary of bytes. A special token has none:
    what it is written as is the text of other tokens.
    """
    if isinstance(vocabulary, ByteVocabulary):
        return [bytes([t - FIRST_BYTE]) if t in vocabulary.text_ids else b"" for t in range(vocabulary.size)]
    anchor = vocabulary.encode("a")[-1:]
    before = vocabulary.decode(anchor)
    found = [b""] * vocabulary.size
    special: frozenset[int] = getattr(vocabulary, "special_ids", frozenset())  # most vocabularies have none
    for token in (token for token in vocabulary.text_ids if token not in special):
        text = vocabulary.decode([*anchor, token])
        if text.startswith(before) and "\N{REPLACEMENT CHARACTER}" not in text:
            found[token] = text[len(before) :].encode()
    return found


class _Tokenizer:
    """A vocabulary with the interface that llguidance needs."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.eos_token_id, self.bos_token_id = vocabulary.end_id, None
        self.tokens = token_bytes(vocabulary)
        self.special_token_ids = [vocabulary.end_id]

    def __call__(self, text: str | bytes) -> Sequence[int]:
        return inner_ids(self._vocabulary, text.decode(errors="replace") if isinstance(text, bytes) else text)
