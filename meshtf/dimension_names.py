"""Dimensions as text: "batch:64 hidden", in which a name stands alone or with a size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from meshtf.errors import ShapeError, nearest

_TOKEN = re.compile(r"(?:[^\s;,.]|\.(?=\d+(?:[+;,.\s}]|$)))+")


class Written(NamedTuple):
    """A dimension in a text: its name, its size if the text gives one, and where it begins."""

    name: str
    size: int | None
    start: int


def underlined(text: str, start: int, length: int) -> str:
    """A line of text for an error message, with carets under the part at fault."""
    return f"\n    {text}\n    {' ' * start}{'^' * length}"


def written_dimensions(text: str, form: str = "name:size, or a name alone") -> Iterator[Written]:
    """The dimensions in a text. Spaces, `;`, `,` and `.` separate them.

    Raises:
      ShapeError: a token is not of the form; the message underlines it.
    """
    for token in _TOKEN.finditer(text):
        match = re.fullmatch(r"([^:]+)(?::(\d{1,18}))?", token.group())
        if match is None:
            raise ShapeError(f"not of the form {form}:{underlined(text, token.start(), len(token.group()))}")
        yield Written(match[1], None if match[2] is None else int(match[2]), token.start())


def sized_dimensions(text: str, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """The (name, size) of each dimension in a text. A name without a size has the size that `sizes` gives it.

    Raises:
      ShapeError: there is no such size, and the text gives none.
    """
    form = "name:size" if not sizes else "name:size, or a name alone"
    found: list[tuple[str, int]] = []
    for name, size, start in written_dimensions(text, form):
        if size is None and not sizes:
            raise ShapeError(f"not of the form {form}:{underlined(text, start, len(name))}")
        if size is None and name not in sizes:
            raise ShapeError(
                needs_size(f'no operand has dimension "{name}"', name, sizes) + underlined(text, start, len(name))
            )
        found.append((name, sizes[name] if size is None else size))
    return found


def needs_size(fact: str, name: str, known: Iterable[str]) -> str:
    """The message about a name that is not known, with the fact first."""
    hint = nearest(name, known).replace("; ", " (").replace("?", "?)")
    return f'{fact}{hint}, and a new dimension needs its size: "{name}:size"'


def parse_pairs(text: str, value_pattern: str, form: str, *, shown: str | None = None) -> list[tuple[str, str]]:
    """Splits `a:x;b:y` into pairs.

    A dot separates pairs too, unless it stands before a number that ends a name: "a:x.0" is the part 0 of x.

    Raises:
      ShapeError: a token is not of the form; the message underlines it in the text, or in `shown`.
    """
    pairs: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(text):
        match = re.fullmatch(rf"([^:]+):({value_pattern})", token.group())
        if match is None:
            where = underlined(text if shown is None else shown, token.start(), len(token.group()))
            raise ShapeError(f"not of the form {form}:{where}")
        pairs.append((match[1], match[2]))
    return pairs
