"""The tokens of a pattern, and errors that underline one of them."""

from __future__ import annotations

import dataclasses
import re

from meshtf.dimension.dimension import underlined
from meshtf.errors import ShapeError, UsageError

ARROW, REST, COMMA, OPEN, CLOSE = "->", "...", ",", "(", ")"
NAME, NUMBER, LABEL = "name", "number", "label"

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<mark>->|\.\.\.|[(),])
      | (?P<number>\d+)(?=[\s(),]|->|$)
      | (?P<name>(?:(?!->|\.\.\.)[^\s(),:;])+) (?: : (?: (?P<size>\d{1,18})(?=[\s(),]|->|$) | (?P<label>) ) )?
    )""",
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Token:
    """A mark such as "(" or "->", a name (perhaps with a size), a number, or a label such as "d_model:".

    Attributes:
      kind: the mark itself, or "name", "number" or "label".
      name: the name; empty for marks and numbers.
      size: the number, or the size of a name, if one is given.
      start: where the token begins in the pattern.
      length: its number of characters.
    """

    kind: str
    name: str
    size: int | None
    start: int
    length: int


def checked_text(text: object) -> None:
    """Checks that a pattern is text.

    Raises:
      UsageError: it is not.
    """
    if not isinstance(text, str):
        raise UsageError(f'a pattern must be text such as "batch (heads d_kv) -> batch heads d_kv", not {text!r}')


def tokens_of(text: str) -> list[Token]:
    """The tokens of a pattern.

    Raises:
      ShapeError: a character has no place in a pattern.
    """
    found: list[Token] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            start = position + len(text[position:]) - len(text[position:].lstrip())
            raise fault(text, start, 1, f'"{text[start]}" is not allowed here; separate names by spaces')
        found.append(_token(match))
        position = match.end()
    return found


def _token(match: re.Match[str]) -> Token:
    mark, name, number, size = match["mark"], match["name"], match["number"], match["size"]
    start = match.end() - len(match[0].lstrip())
    length = match.end() - start
    if mark is not None:
        return Token(mark, "", None, start, length)
    if number is not None:
        return Token(NUMBER, "", int(number), start, length)
    if match["label"] is not None:
        return Token(LABEL, name, None, start, length)
    return Token(NAME, name, None if size is None else int(size), start, length)


def fault(text: str, start: int, length: int, fact: str) -> ShapeError:
    """An error about a part of a pattern, which its message underlines."""
    return ShapeError(fact + underlined(re.sub(r"\s", " ", text), start, max(length, 1)))
