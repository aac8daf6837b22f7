"""Named dimensions and shapes: the vocabulary of the language."""

from __future__ import annotations

import dataclasses
import math
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import SupportsIndex, TypeAlias, cast, overload

from meshtf.call_sites import says_where
from meshtf.dimension_names import sized_dimensions, written_dimensions
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


_SHAPE_FORMS = 'give an mtf.Shape, a list of dimensions, or text such as "batch:64 hidden:8"'

DimensionLike: TypeAlias = "Dimension | str | tuple[str, int]"
"""A dimension: an object, its name (if something else says its size), "name:size", or a pair."""

ShapeLike: TypeAlias = "Shape | Dimension | str | tuple[str, int] | Iterable[DimensionLike]"
"""A shape: an object, a text of names and sizes, one dimension, or a list of dimensions."""


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
      >>> shape["hidden"], "batch" in shape, "vocab" in shape
      (Dimension(name='hidden', size=8), True, False)
      >>> batch, hidden = shape
    """

    dims: Dims

    @says_where
    def __init__(self, dims: ShapeLike) -> None:
        converted = _dimensions(dims, {})
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
    def axis(self, dim: DimensionLike) -> int:
        """The position of a dimension.

        Raises:
          ShapeError: it is absent, or has another size.
        """
        name, size = _name_and_size(dim, self)
        for i, own in enumerate(self.dims):
            if own.name == name:
                if size is not None and size != own.size:
                    raise ShapeError(f'dimension "{name}" has size {own.size} in [{self}], not {size}')
                return i
        raise ShapeError(f'no dimension "{name}" in [{self}]{nearest(name, self.dimension_names)}')

    @says_where
    def only(self, *dims: ShapeLike) -> Shape:
        """The dimensions of this shape that you name, in your order.

        Raises:
          ShapeError: one is absent, has another size, or is named twice.

        Examples:
          >>> x.shape.only("hidden"), x.shape.only("hidden", "batch"), x.shape.only("hidden batch")
          (Shape[hidden:8], Shape[hidden:8 batch:4], Shape[hidden:8 batch:4])
        """
        found = [self.dims[self.axis(d)] for given in dims for d in self._asked(given)]
        for dim in found:
            if found.count(dim) > 1:
                raise ShapeError(f'dimension "{dim.name}" is named twice; name each once')
        return Shape(found)

    def _asked(self, dims: ShapeLike) -> Iterable[DimensionLike]:
        """One dimension, or several. A text that is the name of one may have a point in it."""
        return [dims] if isinstance(dims, str) and self.has(dims) else _listed(dims, self)

    def has(self, dim: DimensionLike) -> bool:
        """Whether the shape has a dimension of that name; sizes are not compared."""
        name = dim if isinstance(dim, str) else _name_and_size(dim)[0]
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
        return self.has(dim) if isinstance(dim, str) else dim in self.dims

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dims)

    def __len__(self) -> int:
        return len(self.dims)

    @overload
    def __getitem__(self, key: int | DimensionLike) -> Dimension: ...
    @overload
    def __getitem__(self, key: slice) -> Shape: ...
    def __getitem__(self, key: int | slice | DimensionLike) -> Dimension | Shape:
        """The dimension at a position or of a name, or the shape of several positions."""
        if isinstance(key, str | Dimension | tuple):
            return self.dims[self.axis(key)]
        try:
            return Shape(self.dims[key]) if isinstance(key, slice) else self.dims[key]
        except TypeError:
            return self.dims[self.axis(key)]  # type: ignore[arg-type]  # says what is wrong with the key
        except IndexError:
            raise IndexError(f"[{self}] has {counted(self.ndims, 'dimension')}, and none at position {key}") from None

    def __str__(self) -> str:
        return _text(self.dims)

    def __repr__(self) -> str:
        return self.to_string


@says_where
def convert_to_dimension(d: DimensionLike | None, sizes_from: Shape | Iterable[Shape] = ()) -> Dimension | None:
    """A `Dimension` from itself, "name:size" or a (name, size) pair; None passes through.

    A name alone has the size that it has in the shapes `sizes_from`.

    Examples:
      >>> mtf.convert_to_dimension("hidden:8")
      Dimension(name='hidden', size=8)
      >>> mtf.convert_to_dimension("hidden", x.shape)
      Dimension(name='hidden', size=8)
    """
    return None if d is None else _dimension(d, _sizes(sizes_from))


@overload
def convert_to_shape(x: None, sizes_from: Shape | Iterable[Shape] = ()) -> None: ...
@overload
def convert_to_shape(x: ShapeLike, sizes_from: Shape | Iterable[Shape] = ()) -> Shape: ...
@says_where
def convert_to_shape(x: ShapeLike | None, sizes_from: Shape | Iterable[Shape] = ()) -> Shape | None:
    """A `Shape` from itself, a dimension, a list of dimensions or pairs, or "batch:64 pixels:784".

    In a string the dimensions are separated by spaces, `;`, `,` or `.`. None passes through. A name alone has the size
    that it has in the shapes `sizes_from`.

    Raises:
      ShapeError: a name has no size, in the text or in `sizes_from`; or it stands twice.

    Examples:
      >>> mtf.convert_to_shape("batch:4 hidden:8")
      Shape[batch:4 hidden:8]
      >>> mtf.convert_to_shape([("batch", 4), mtf.Dimension("hidden", 8)])
      Shape[batch:4 hidden:8]
      >>> mtf.convert_to_shape("hidden copies:2 batch", x.shape)
      Shape[hidden:8 copies:2 batch:4]
    """
    return x if x is None or isinstance(x, Shape) else Shape(_dimensions(x, _sizes(sizes_from)))


def shape_of(x: ShapeLike, sizes_from: Shape | Iterable[Shape] = ()) -> Shape:
    """Converts to a shape as `convert_to_shape` does, but refuses None."""
    shape = convert_to_shape(x, sizes_from)
    if shape is None:
        raise ShapeError('a shape is needed here, and None was given; for a scalar give [] or ""')
    return shape


@says_where
def combined_dimension(dims: ShapeLike, name: str | None = None) -> Dimension:
    """One dimension whose size is the product of the sizes. It has the name of the first, unless you give one.

    Examples:
      >>> mtf.combined_dimension([("heads", 2), ("d_kv", 4)], name="hidden")
      Dimension(name='hidden', size=8)
    """
    shape = Shape(dims)
    if not shape.dims and name is None:
        raise ShapeError("combined_dimension of no dimensions needs a name")
    return Dimension(name or shape[0].name, shape.size)


def names_of(dims: ShapeLike) -> list[str]:
    """The names of dimensions, with or without sizes."""
    return [_name_and_size(d)[0] for d in _listed(dims)]


def _listed(dims: ShapeLike, shape: Shape | None = None) -> Iterable[DimensionLike]:
    """One dimension, a text or a list of them, as a list. No name needs a size."""
    if isinstance(dims, str):
        return [name if size is None else (name, size) for name, size, _ in written_dimensions(dims)]
    if isinstance(dims, Dimension) or _is_pair(dims):
        return [cast("DimensionLike", dims)]
    if not isinstance(dims, Iterable):
        raise ShapeError(f"a dimension or its name is needed, or a list of them, and not {dims!r}{_names_of(shape)}")
    return cast("Iterable[DimensionLike]", dims)


def _name_and_size(dim: DimensionLike, shape: Shape | None = None) -> tuple[str, int | None]:
    """A dimension's name, and its size if it is given."""
    if isinstance(dim, str):
        written = list(written_dimensions(dim)) if ":" in dim else []
        return (written[0].name, written[0].size) if len(written) == 1 else (dim, None)
    if isinstance(dim, tuple | list) and len(dim) == 2:
        dim = Dimension(*dim)
    if isinstance(dim, Dimension):
        return dim.name, dim.size
    raise ShapeError(f"a dimension or its name is needed, not {dim!r}{_names_of(shape)}")


def _names_of(shape: Shape | None) -> str:
    """Which names a message may offer, if a shape is known."""
    if shape is None:
        return ""
    names = ", ".join(f'"{name}"' for name in shape.dimension_names)
    return f"; [{shape}] has {names}" if names else "; the shape is [] and has none"


def _is_pair(x: object) -> bool:
    """Whether x is a (name, size) pair, and not a list of two dimensions."""
    if not (isinstance(x, tuple) and len(x) == 2 and isinstance(x[0], str)):
        return False
    return not isinstance(x[1], str | tuple | Dimension)


def _sizes(shapes: Shape | Iterable[Shape]) -> dict[str, int]:
    """The size of each name. Shapes that contradict each other are the operation's to refuse: the first counts."""
    sizes: dict[str, int] = {}
    for shape in [shapes] if isinstance(shapes, Shape) else shapes:
        for dim in shape:
            sizes.setdefault(dim.name, dim.size)
    return sizes


def _dimensions(x: ShapeLike, sizes: Mapping[str, int]) -> Dims:
    if isinstance(x, str) and x not in sizes:
        return Dims(Dimension(name, size) for name, size in sized_dimensions(x, sizes))
    if isinstance(x, str | Dimension) or _is_pair(x):
        return Dims([_dimension(x, sizes)])
    if not isinstance(x, Iterable):
        raise ShapeError(f"not a shape: {x!r}; {_SHAPE_FORMS}")
    return Dims(_dimension(d, sizes) for d in x)


def _dimension(d: object, sizes: Mapping[str, int]) -> Dimension:
    if isinstance(d, Dimension):
        return d
    if isinstance(d, tuple | list) and len(d) == 2:
        return Dimension(*d)
    if isinstance(d, str) and d in sizes:
        return Dimension(d, sizes[d])
    if isinstance(d, str) and (":" in d or sizes):
        if len(named := sized_dimensions(d, sizes)) == 1:
            return Dimension(*named[0])
        raise ShapeError(f"one dimension is needed here, and {d!r} has {len(named)}")
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
