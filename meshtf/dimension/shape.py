"""Shapes: ordered dimensions with distinct names, and the forms in which a program writes them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias, cast, overload

from meshtf.call_sites import says_where
from meshtf.dimension.dimension import (
    Dimension,
    DimensionLike,
    Dims,
    dimension_from,
    is_pair,
    name_and_size,
    sized_dimensions,
    written_dimensions,
)
from meshtf.errors import ShapeError, counted, nearest

_SHAPE_FORMS = 'give an mtf.Shape, a list of dimensions, or text such as "batch:64 hidden:8"'

ShapeLike: TypeAlias = "Shape | Dimension | str | tuple[str, int] | Iterable[DimensionLike]"
"""A shape: a `Shape`, a text of names and sizes, one dimension, or a list of dimensions."""


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
          ShapeError: there is none; the message suggests the nearest name.
        """
        return self.dims[self.axis(name)]

    @says_where
    def axis(self, dim: DimensionLike) -> int:
        """The position of a dimension.

        Raises:
          ShapeError: it is absent, or has another size.
        """
        for i, own in enumerate(self.dims):  # the frequent case, before the text of an error is built
            if dim in (own.name, own):
                return i
        name, size = name_and_size(dim, _names_of(self))
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
        """One dimension, or several. A dot separates names, unless the whole text is the name of a dimension."""
        return [dims] if isinstance(dims, str) and self.has(dims) else _listed(dims, self)

    def has(self, dim: DimensionLike) -> bool:
        """Whether the shape has a dimension of that name; sizes are not compared."""
        name = dim if isinstance(dim, str) and ":" not in dim else name_and_size(dim)[0]
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
        """Whether the shape has a dimension of that name, and of that size if one is given."""
        if not (isinstance(dim, str) or is_pair(dim)):
            return dim in self.dims
        name, size = name_and_size(cast("DimensionLike", dim))
        return self.has(name) and size in (None, self[name].size)

    def __iter__(self) -> Iterator[Dimension]:
        return iter(self.dims)

    def __len__(self) -> int:
        return len(self.dims)

    @overload
    def __getitem__(self, key: int | DimensionLike) -> Dimension: ...
    @overload
    def __getitem__(self, key: slice) -> Shape: ...
    def __getitem__(self, key: int | slice | DimensionLike) -> Dimension | Shape:
        """The dimension at a position or with a name, or the shape of a slice of positions."""
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
    """Converts a `Dimension`, "name:size" or a (name, size) pair to a `Dimension`; None passes through.

    A name alone takes its size from the shapes `sizes_from`.

    Examples:
      >>> mtf.convert_to_dimension("hidden:8")
      Dimension(name='hidden', size=8)
      >>> mtf.convert_to_dimension("hidden", x.shape)
      Dimension(name='hidden', size=8)
    """
    return None if d is None else dimension_from(d, _sizes(sizes_from))


@overload
def convert_to_shape(x: None, sizes_from: Shape | Iterable[Shape] = ()) -> None: ...
@overload
def convert_to_shape(x: ShapeLike, sizes_from: Shape | Iterable[Shape] = ()) -> Shape: ...
@says_where
def convert_to_shape(x: ShapeLike | None, sizes_from: Shape | Iterable[Shape] = ()) -> Shape | None:
    """Converts a shape, a dimension, a list of dimensions or pairs, or "batch:64 pixels:784" to a `Shape`.

    In a string, the dimensions are separated by spaces, `;`, `,` or `.`. None passes through. A name alone takes its
    size from the shapes `sizes_from`.

    Raises:
      ShapeError: a name has no size in the text or in `sizes_from`, or occurs twice.

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
    """One dimension whose size is the product of the sizes. By default, it has the first dimension's name.

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
    return [name_and_size(d)[0] for d in _listed(dims)]


def described(shape: Shape, unpadded_shape: Shape) -> str:
    """A variable's shape as text. If the variable has padding, the shape without it comes first."""
    return f"[{shape}]" if shape == unpadded_shape else f"[{unpadded_shape}] (padded to [{shape}])"


def unused_name(base: str, *shapes: Shape) -> str:
    """`base`, with underscores appended until no shape has a dimension of that name."""
    while any(shape.has(base) for shape in shapes):
        base += "_"
    return base


def _listed(dims: ShapeLike, shape: Shape | None = None) -> Iterable[DimensionLike]:
    """Lists the dimensions in a text, a single dimension or a list. Names need no sizes."""
    if isinstance(dims, str):
        return [name if size is None else (name, size) for name, size, _ in written_dimensions(dims)]
    if isinstance(dims, Dimension) or is_pair(dims):
        return [cast("DimensionLike", dims)]
    if not isinstance(dims, Iterable):
        raise ShapeError(f"a dimension or its name is needed, or a list of them, and not {dims!r}{_names_of(shape)}")
    return cast("Iterable[DimensionLike]", dims)


def _names_of(shape: Shape | None) -> str:
    """The end of an error message: the names of a shape's dimensions, if a shape is known."""
    if shape is None:
        return ""
    names = ", ".join(f'"{name}"' for name in shape.dimension_names)
    return f"; [{shape}] has {names}" if names else "; the shape is [] and has none"


def _sizes(shapes: Shape | Iterable[Shape]) -> dict[str, int]:
    """The size of each name. If shapes disagree, the first counts; the operation reports the conflict."""
    sizes: dict[str, int] = {}
    for shape in [shapes] if isinstance(shapes, Shape) else shapes:
        for dim in shape:
            sizes.setdefault(dim.name, dim.size)
    return sizes


def _dimensions(x: ShapeLike, sizes: Mapping[str, int]) -> Dims:
    if isinstance(x, str) and x not in sizes:
        return Dims(Dimension(name, size) for name, size in sized_dimensions(x, sizes))
    if isinstance(x, str | Dimension) or is_pair(x):
        return Dims([dimension_from(x, sizes)])
    if not isinstance(x, Iterable):
        raise ShapeError(f"not a shape: {x!r}; {_SHAPE_FORMS}")
    return Dims(dimension_from(d, sizes) for d in x)


def _text(dims: Iterable[Dimension]) -> str:
    return " ".join(map(str, dims))
