"""Parses the text of an annotation: a tensor's dimensions, and what is known about their sizes."""

from __future__ import annotations

import dataclasses
import re

from meshtf.dimension import Dimension, Shape
from meshtf.errors import ShapeError

_TOKEN = re.compile(r"[^\s;,]+")
_DIMENSION = re.compile(r"(?P<name>[^\s:;,.\d][^\s:;,.]*)(:((?P<number>\d{1,18})|(?P<variable>[^\W\d]\w*)))?")
_FORM = """\
{fact}; an annotation has a name for each dimension, alone ("batch"), with a size ("batch:64"), or with the name of a \
size ("memory:length"), and "..." for any others:
    {text}
    {underline}"""


@dataclasses.dataclass(frozen=True, slots=True)
class DimensionPattern:
    """A dimension's name, and its size: a number, or the name of a size.

    Without a size, the dimension's name is also the name of its size: "batch" means "batch:batch".
    """

    name: str
    size: int | str

    @property
    def variable(self) -> str:
        """The name of the size. If the size is a number, this is the dimension's own name."""
        return self.size if isinstance(self.size, str) else self.name

    def __str__(self) -> str:
        return self.name if self.size == self.name else f"{self.name}:{self.size}"


@dataclasses.dataclass(frozen=True, slots=True)
class ShapePattern:
    """The dimensions that a tensor must have, in order.

    Attributes:
      before: the dimensions before "...", or all of them.
      after: the dimensions after "..."; None if there is no "...", and then the tensor has no other dimension.
    """

    before: tuple[DimensionPattern, ...]
    after: tuple[DimensionPattern, ...] | None = None

    @property
    def dims(self) -> tuple[DimensionPattern, ...]:
        return self.before + (self.after or ())

    def __str__(self) -> str:
        dots = () if self.after is None else ("...", *map(str, self.after))
        return " ".join((*map(str, self.before), *dots))


def parse_shape_pattern(given: object) -> ShapePattern:
    """Parses what is in an annotation's brackets: text, a dimension, a shape, or several of these.

    Raises:
      ShapeError: `given` is none of these, or a token is no dimension. The message underlines the token.
    """
    text = " ".join(map(_text, given)) if isinstance(given, tuple | list | Shape) else _text(given)
    parts: list[list[DimensionPattern]] = [[]]
    names: set[str] = set()
    for token in _TOKEN.finditer(text):
        if token.group() == "...":
            parts.append([])
            if len(parts) > 2:
                raise _fault('"..." stands twice', text, token)
            continue
        dim = _dimension(text, token)
        if dim.name in names:
            raise _fault(f'dimension "{dim.name}" stands twice', text, token)
        names.add(dim.name)
        parts[-1].append(dim)
    before, *after = parts
    return ShapePattern(tuple(before), tuple(after[0]) if after else None)


def _text(given: object) -> str:
    if isinstance(given, str | Dimension | Shape):
        return str(given)
    raise ShapeError(
        f'an annotation takes text or dimensions in its brackets, as in mtf.f32["batch:64 hidden"], not {given!r}'
    )


def _dimension(text: str, token: re.Match[str]) -> DimensionPattern:
    found = _DIMENSION.fullmatch(token.group())
    if found is None:
        raise _fault(f'"{token.group()}" is not a dimension', text, token)
    number = found["number"]
    return DimensionPattern(found["name"], int(number) if number else found["variable"] or found["name"])


def _fault(fact: str, text: str, token: re.Match[str]) -> ShapeError:
    underline = " " * token.start() + "^" * len(token.group())
    return ShapeError(_FORM.format(fact=fact, text=text, underline=underline))
