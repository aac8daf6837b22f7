"""Turns tokens into text one by one. The text never has half a character, or a stop text."""

from __future__ import annotations

from collections.abc import Sequence

from meshtf.train.data.vocabularies.vocabulary import Vocabulary

_REPLACEMENT = "\ufffd"
_MOST_MISSING = 3
"""The most bytes that an incomplete UTF-8 character can have."""
_CONTEXT, _LONGEST = 8, 24


class TokenText:
    """The text of tokens that come one by one.

    A vocabulary may write a piece differently at the beginning of a text. So each new token is decoded together with
    the last ones before it. The first bytes of a character are held back until the character is complete. A replacement
    at the end of the prompt is part of the text only if it becomes another character.
    """

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int]) -> None:
        self._vocabulary = vocabulary
        self._ids = list(prompt[-_CONTEXT:])
        self._before = vocabulary.decode(self._ids)
        self._num_given = len(_whole(self._before))

    def add(self, token: int) -> str:
        """Adds a token, and returns the new text."""
        self._ids.append(token)
        text = self._vocabulary.decode(self._ids)
        whole = _whole(text)
        new = whole[self._num_known(text) :]
        self._num_given = max(self._num_given, len(whole))
        if len(self._ids) > _LONGEST and self._num_given == len(text):
            self._ids = self._ids[-_CONTEXT:]
            self._before, self._num_given = "", len(self._vocabulary.decode(self._ids))
        return new

    def rest(self) -> str:
        """Returns the text that was held back. Call it after the last token."""
        text = self._vocabulary.decode(self._ids)
        return text[self._num_known(text) :]

    def _num_known(self, text: str) -> int:
        """The number of a text's first characters that were returned, or are the prompt's."""
        return max(self._num_given, len(self._before)) if text.startswith(self._before) else self._num_given


def _whole(text: str) -> str:
    """Returns a text without the replacements at its end, which may stand for the first bytes of a character."""
    end = len(text)
    while end > 0 and len(text) - end < _MOST_MISSING and text[end - 1] == _REPLACEMENT:
        end -= 1
    return text[:end]


class StopTexts:
    """Passes text on until a stop text occurs. Text that may be the beginning of a stop is held back.

    Attributes:
      is_found: whether a stop text has occurred. Nothing passes after it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held = stops, ""
        self.is_found = False

    def add(self, text: str) -> str:
        """Adds text, and returns the text that passes now."""
        if self.is_found:
            return ""
        self._held += text
        places = [place for stop in self._stops if (place := self._held.find(stop)) >= 0]
        if places:
            self.is_found = True
            passed, self._held = self._held[: min(places)], ""
            return passed
        end = len(self._held) - max((_common(self._held, stop) for stop in self._stops), default=0)
        passed, self._held = self._held[:end], self._held[end:]
        return passed

    def rest(self) -> str:
        """Returns the text that was held back. Call it after the last text."""
        rest, self._held = self._held, ""
        return rest


def _common(text: str, stop: str) -> int:
    """Returns how many characters at a text's end may begin a stop."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if stop.startswith(text[-length:])), 0)
