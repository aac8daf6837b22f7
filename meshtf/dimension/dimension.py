"""A named dimension, and the forms in which a program writes one.

`mtf.Dimension("batch", 64)`, `("batch", 64)` and "batch:64" mean the same. In text such as "batch:64 hidden", a name
may have a size or not.
"""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, SupportsIndex, TypeAlias, overload

from meshtf.call_sites import says_where
from meshtf.errors import ShapeError, nearest


@dataclasses.dataclass(frozen=True, slots=True)
class Dimension:
    """A named dimension. Operations match dimensions by name. Two sizes under one name are an error.

    Examples:
      >>> hidden = mtf.Dimension("hidden", 8)
      >>> hidden.name, hidden.size, str(hidden)
      ('hidden', 8, 'hidden:8')
    """

    name: str
    size: int

    @says_where
    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[^\s:;,]+", self.name):
            raise ShapeError(
                f"a dimension's name must be a word without spaces or the characters : ; , and is {self.name!r}"
            )
        try:
            size = operator.index(self.size)
            if isinstance(self.size, bool):
                raise TypeError
        except TypeError:
            raise ShapeError(f"the size of dimension {self.name!r} must be an integer, not {self.size!r}") from None
        if size < 0:
            raise ShapeError(f"the size of dimension {self.name!r} must not be negative, and is {size}")
        object.__setattr__(self, "size", size)

    def __str__(self) -> str:
        return f"{self.name}:{self.size}"


DimensionLike: TypeAlias = "Dimension | str | tuple[str, int]"
"""A dimension: a `Dimension`, its name (where its size is known), "name:size", or a (name, size) pair."""


class Dims(tuple[Dimension, ...]):
    """The dimensions of a shape, as a tuple.

    They can be added to a list and compared with one, since Mesh TensorFlow's dims are a list: `shape.dims[:-1] + [d]`
    is a list.
    """

    @overload
    def __getitem__(self, key: SupportsIndex) -> Dimension: ...
    @overload
    def __getitem__(self, key: slice) -> Dims: ...
    def __getitem__(self, key: SupportsIndex | slice) -> Dimension | Dims:
        return Dims(super().__getitem__(key)) if isinstance(key, slice) else super().__getitem__(key)

    @overload
    def __add__(self, other: list[Dimension]) -> list[Dimension]: ...
    @overload
    def __add__(self, other: tuple[Dimension, ...]) -> tuple[Dimension, ...]: ...
    def __add__(self, other: list[Dimension] | tuple[Dimension, ...]) -> list[Dimension] | tuple[Dimension, ...]:
        return [*self, *other] if isinstance(other, list) else super().__add__(other)

    def __radd__(self, other: list[Dimension]) -> list[Dimension]:
        return [*other, *self]

    def __eq__(self, other: object) -> bool:
        return super().__eq__(tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


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
      ShapeError: a token does not have the form; the message underlines it.
    """
    for token in _TOKEN.finditer(text):
        match = re.fullmatch(r"([^:]+)(?::(\d{1,18}))?", token.group())
        if match is None:
            raise ShapeError(f"not of the form {form}:{underlined(text, token.start(), len(token.group()))}")
        yield Written(match[1], None if match[2] is None else int(match[2]), token.start())


def sized_dimensions(text: str, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
    """The (name, size) of each dimension in a text. A name without a size takes it from `sizes`.

    Raises:
      ShapeError: neither the text nor `sizes` has the size of a name.
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
    """The error message about an unknown name: the fact, the nearest known name, and how to state a size."""
    hint = nearest(name, known).replace("; ", " (").replace("?", "?)")
    return f'{fact}{hint}, and a new dimension needs its size: "{name}:size"'


def parse_pairs(text: str, value_pattern: str, form: str, *, shown: str | None = None) -> list[tuple[str, str]]:
    """Splits `a:x;b:y` into pairs.

    A dot also separates pairs, unless it precedes a number that ends a name: "a:x.0" is part 0 of x.

    Raises:
      ShapeError: a token does not have the form; the message underlines it in the text, or in `shown`.
    """
    pairs: list[tuple[str, str]] = []
    for token in _TOKEN.finditer(text):
        match = re.fullmatch(rf"([^:]+):({value_pattern})", token.group())
        if match is None:
            where = underlined(text if shown is None else shown, token.start(), len(token.group()))
            raise ShapeError(f"not of the form {form}:{where}")
        pairs.append((match[1], match[2]))
    return pairs


def dimension_from(d: object, sizes: Mapping[str, int]) -> Dimension:
    """A dimension from any form. A name alone takes its size from `sizes`."""
    if isinstance(d, Dimension):
        return d
    if isinstance(d, tuple | list) and len(d) == 2:
        return Dimension(*d)
    if isinstance(d, str) and d in sizes:
        return Dimension(d, sizes[d])
    if isinstance(d, str) and (":" in d or sizes):
        if len(named := sized_dimensions(d, sizes)) == 1:
            return Dimension(*named[0])
        raise ShapeError(f"one dimension is needed here, but {d!r} has {len(named)}")
    raise ShapeError(f"not a dimension: {d!r}; write mtf.Dimension(name, size), or a pair ({_example(d)})")


def name_and_size(dim: DimensionLike, offered: str = "") -> tuple[str, int | None]:
    """A dimension's name, and its size if it has one. `offered` ends the error message if `dim` is no dimension."""
    if isinstance(dim, str):
        written = list(written_dimensions(dim)) if ":" in dim else []
        return (written[0].name, written[0].size) if len(written) == 1 else (dim, None)
    if isinstance(dim, tuple | list) and len(dim) == 2:
        dim = Dimension(*dim)
    if isinstance(dim, Dimension):
        return dim.name, dim.size
    raise ShapeError(f"a dimension or its name is needed, not {dim!r}{offered}")


def is_pair(x: object) -> bool:
    """Whether x is a (name, size) pair, and not a list of two dimensions."""
    if not (isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str)):
        return False
    return not isinstance(x[1], str | tuple | Dimension)


def _example(d: object) -> str:
    return f'"{d}", size' if isinstance(d, str) else "name, size"
