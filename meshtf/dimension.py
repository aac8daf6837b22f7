"""Named dimensions and shapes: the vocabulary of the language."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Iterable, Iterator
from typing import SupportsIndex, TypeAlias, overload

from meshtf.call_sites import says_where, user_site
from meshtf.errors import ShapeError, counted, nearest


@dataclasses.dataclass(frozen=True, slots=True)
class Dimension:
    """A named dimension. Operations match dimensions by name; it is an error if their sizes then differ.

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
            raise ShapeError(f"a dimension's name is a word without spaces or any of : ; , and not {self.name!r}")
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


_TOKEN = re.compile(r"(?:[^\s;,.]|\.(?=\d+(?:[+;,.\s}]|$)))+")

_SHAPE_FORMS = 'give an mtf.Shape, a list of dimensions, or text such as "batch:64 hidden:8"'

DimensionLike: TypeAlias = "Dimension | tuple[str, int]"
ShapeLike: TypeAlias = "Shape | str | Iterable[DimensionLike] | Dimension"


class Dims(tuple[Dimension, ...]):
    """The dimensions of a shape, as a tuple.

    Beside a list they act as a list, as Mesh TensorFlow's do: `shape.dims[:-1] + [d]` is a list, and `shape.dims ==
    [d]` compares.
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


@dataclasses.dataclass(frozen=True, slots=True, init=False)
class Shape:
    """An ordered tuple of dimensions with distinct names.

    Examples:
      >>> shape = mtf.Shape([mtf.Dimension("batch", 4), ("hidden", 8)])
      >>> shape.size, shape.dimension_names, shape + "vocab:16" - "batch:4"
      (32, ['batch', 'hidden'], Shape[hidden:8 vocab:16])
      >>> shape.dims[:-1] + [mtf.Dimension("d_ff", 32)]
      [Dimension(name='batch', size=4), Dimension(name='d_ff', size=32)]
    """

    dims: Dims

    @says_where
    def __init__(self, dims: Iterable[DimensionLike]) -> None:
        if not isinstance(dims, Iterable):
            raise ShapeError(f"not a shape: {dims!r}; {_SHAPE_FORMS}")
        converted = Dims(_dimension(d) for d in dims)
        seen: dict[str, Dimension] = {}
        for dim in converted:
            if dim.name in seen:
                raise ShapeError(
                    f'dimension "{dim.name}" stands twice in [{_text(converted)}]; '
                    f"rename one of them (mtf.rename_dimension)"
                )
            seen[dim.name] = dim
        object.__setattr__(self, "dims", converted)

    @property
    def ndims(self) -> int:
        return len(self.dims)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(d.size for d in self.dims)

    @property
    def to_integer_list(self) -> list[int]:
        return [d.size for d in self.dims]

    @property
    def dimension_names(self) -> list[str]:
        return [d.name for d in self.dims]

    @property
    def to_string(self) -> str:
        return f"Shape[{_text(self.dims)}]"

    @property
    def cumprod(self) -> list[int]:
        """Product of the sizes before each dimension."""
        return [math.prod(self.to_integer_list[:i]) for i in range(self.ndims)]

    def get_dim_by_name(self, name: str) -> Dimension:
        """The dimension of that name.

        Raises:
          ShapeError: there is none; the message has the nearest name.
        """
        return self.dims[self.axis(name)]

    @says_where
    def axis(self, dim: Dimension | str) -> int:
        """The position of a dimension.

        Raises:
          ShapeError: it is absent, or has another size.
        """
        name = _name(dim)
        for i, own in enumerate(self.dims):
            if own.name == name:
                if isinstance(dim, Dimension) and dim.size != own.size:
                    raise ShapeError(f'dimension "{name}" has size {own.size} in [{self}], not {dim.size}')
                return i
        raise ShapeError(f'no dimension "{name}" in [{self}]{nearest(name, self.dimension_names)}')

    def has(self, dim: Dimension | str) -> bool:
        """Whether the shape has a dimension of that name; sizes are not compared."""
        name = dim if isinstance(dim, str) else _name(dim)
        for own in self.dims:  # noqa: SIM110  # asked so often that a generator shows
            if own.name == name:
                return True
        return False

    def rename_dimension(self, old_name: str, new_name: str) -> Shape:
        axis = self.axis(old_name)
        return Shape([Dimension(new_name, d.size) if i == axis else d for i, d in enumerate(self.dims)])

    def resize_dimension(self, name: str, new_size: int) -> Shape:
        axis = self.axis(name)
        return Shape([Dimension(name, new_size) if i == axis else d for i, d in enumerate(self.dims)])

    def __add__(self, other: ShapeLike | None) -> Shape:
        return Shape([*self.dims, *(convert_to_shape(other) if other is not None else ())])

    def __sub__(self, other: ShapeLike | None) -> Shape:
        """The shape without these dimensions, each of which it must have."""
        removed = {self.axis(d) for d in convert_to_shape(other)} if other is not None else set()
        return Shape([d for i, d in enumerate(self.dims) if i not in removed])

    def __contains__(self, dim: object) -> bool:
        return dim in self.dims

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dims)

    def __len__(self) -> int:
        return len(self.dims)

    @overload
    def __getitem__(self, key: int) -> Dimension: ...
    @overload
    def __getitem__(self, key: slice) -> Shape: ...
    def __getitem__(self, key: int | slice) -> Dimension | Shape:
        try:
            return Shape(self.dims[key]) if isinstance(key, slice) else self.dims[key]
        except TypeError:
            fact = f"a position is needed, not {key!r}; by name it is get_dim_by_name(name) of the shape"
            raise ShapeError(f"{fact}\n  at {user_site()}") from None
        except IndexError:
            raise IndexError(f"[{self}] has {counted(self.ndims, 'dimension')}, and none at position {key}") from None

    def __str__(self) -> str:
        return _text(self.dims)

    def __repr__(self) -> str:
        return self.to_string


@says_where
def convert_to_dimension(d: DimensionLike | None) -> Dimension | None:
    """A `Dimension` from itself or a (name, size) pair; None passes through.

    Examples:
      >>> mtf.convert_to_dimension(("hidden", 8))
      Dimension(name='hidden', size=8)
    """
    return None if d is None else _dimension(d)


@overload
def convert_to_shape(x: None) -> None: ...
@overload
def convert_to_shape(x: ShapeLike) -> Shape: ...
@says_where
def convert_to_shape(x: ShapeLike | None) -> Shape | None:
    """A `Shape` from itself, a dimension, a list of dimensions or pairs, or "batch:64 pixels:784".

    In a string the pairs are separated by spaces, `;`, `,` or `.`. None passes through.

    Examples:
      >>> mtf.convert_to_shape("batch:4 hidden:8")
      Shape[batch:4 hidden:8]
      >>> mtf.convert_to_shape([("batch", 4), mtf.Dimension("hidden", 8)])
      Shape[batch:4 hidden:8]
    """
    if x is None or isinstance(x, Shape):
        return x
    if isinstance(x, Dimension):
        return Shape([x])
    if isinstance(x, str):
        return Shape([Dimension(name, int(size)) for name, size in parse_pairs(x, r"\d{1,18}", "name:size")])
    return Shape(x)


def shape_of(x: ShapeLike) -> Shape:
    """Converts to a shape as `convert_to_shape` does, but refuses None."""
    shape = convert_to_shape(x)
    if shape is None:
        raise ShapeError('a shape is needed here, and None was given; for a scalar give [] or ""')
    return shape


def parse_pairs(text: str, value_pattern: str, form: str, *, shown: str | None = None) -> list[tuple[str, str]]:
    """Splits `a:x;b:y` into pairs.

    A dot separates pairs too, unless it stands before a number that ends a name: "a:x.0" is the part 0 of x.

    Raises:
      ShapeError: a token is not of the form; the message underlines it in the text, or in `shown`.
    """
    pairs = []
    for token in _TOKEN.finditer(text):
        match = re.fullmatch(rf"([^:]+):({value_pattern})", token.group())
        if match is None:
            underline = " " * token.start() + "^" * len(token.group())
            raise ShapeError(f"not of the form {form}:\n    {text if shown is None else shown}\n    {underline}")
        pairs.append((match[1], match[2]))
    return pairs


@says_where
def combined_dimension(dims: Iterable[DimensionLike], name: str | None = None) -> Dimension:
    """One dimension whose size is the product of the sizes. It has the name of the first, unless you give one.

    Examples:
      >>> mtf.combined_dimension([("heads", 2), ("d_kv", 4)], name="hidden")
      Dimension(name='hidden', size=8)
    """
    shape = Shape(dims)
    if not shape.dims and name is None:
        raise ShapeError("combined_dimension of no dimensions needs a name")
    return Dimension(name or shape[0].name, shape.size)


@says_where
def _name(dim: Dimension | str) -> str:
    if isinstance(dim, str | Dimension):
        return dim if isinstance(dim, str) else dim.name
    raise ShapeError(f"a dimension or its name is needed, not {dim!r}")


def _dimension(d: DimensionLike) -> Dimension:
    if isinstance(d, Dimension):
        return d
    if isinstance(d, tuple | list) and len(d) == 2:
        return Dimension(*d)
    raise ShapeError(f"not a dimension: {d!r}; write mtf.Dimension(name, size), or a pair ({_example(d)})")


def _example(d: object) -> str:
    return f'"{d}", size' if isinstance(d, str) else "name, size"


def _text(dims: Iterable[Dimension]) -> str:
    return " ".join(map(str, dims))


def described(shape: Shape, unpadded_shape: Shape) -> str:
    """A variable's shape as text. If the variable has padding, the shape without it comes first."""
    return f"[{shape}]" if shape == unpadded_shape else f"[{unpadded_shape}] (padded to [{shape}])"


def unused_name(base: str, *shapes: Shape) -> str:
    """`base`, lengthened until none of the shapes has it."""
    while any(shape.has(base) for shape in shapes):
        base += "_"
    return base
