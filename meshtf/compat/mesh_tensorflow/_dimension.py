"""Dimensions that are also pairs, and shapes with lists of dimensions. Mesh TensorFlow programs unpack both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, cast

from meshtf import dimension as language
from meshtf.dimension import DimensionLike, Dims, ShapeLike
from meshtf.errors import ShapeError


class Dimension(language.Dimension):
    """A named dimension that is also a pair.

    `name, size = dim`, `dim[1]` and `dim._replace(size=4)` work as on a named tuple.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> name, size = old.Dimension("hidden", 8)
      >>> name, size, old.Dimension("hidden", 8) == meshtf.Dimension("hidden", 8)
      ('hidden', 8, True)
    """

    __slots__ = ()
    _fields = ("name", "size")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} of a dimension cannot be set; make another, as dim._replace({name}={value!r})")

    def __iter__(self) -> Iterator[Any]:
        return iter((self.name, self.size))

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, key: SupportsIndex | slice) -> Any:
        return (self.name, self.size)[key]

    def _replace(self, **changes: Any) -> Dimension:
        return Dimension(**{"name": self.name, "size": self.size} | changes)

    def _asdict(self) -> dict[str, Any]:
        return {"name": self.name, "size": self.size}

    def __eq__(self, other: object) -> bool:
        if isinstance(other, language.Dimension):
            return (self.name, self.size) == (other.name, other.size)
        return (self.name, self.size) == other if isinstance(other, tuple) else NotImplemented

    def __lt__(self, other: Iterable[Any]) -> bool:
        return tuple(self) < tuple(other)

    def __hash__(self) -> int:
        return hash((self.name, self.size))


class ListedDims(Dims):
    """The dimensions of a shape, whose slices and copies are lists, as in Mesh TensorFlow.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> dims = old.Shape([("batch", 4), ("hidden", 8)]).dims[:]
      >>> dims[0] = old.Dimension("length", 2)
      >>> old.Shape(dims)
      Shape[length:2 hidden:8]
    """

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return list(found) if isinstance(key, slice) else found

    def copy(self) -> list[language.Dimension]:
        return list(self)

    def __setitem__(self, key: SupportsIndex | slice, value: Any) -> None:
        raise TypeError(
            "the dimensions of a shape cannot be set; change a copy: dims = shape.dims[:], and make mtf.Shape(dims)"
        )


class Shape(language.Shape):
    """A `meshtf.Shape` with two features of the original.

    `shape - dims` ignores dimensions of the list that the shape lacks. Changes of the list `_dims` change the shape.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> shape = old.Shape([old.Dimension("batch", 4), ("hidden", 8)])
      >>> shape - [old.Dimension("absent", 2)], shape.cumprod_to_tensor_axis(4)
      (Shape[batch:4 hidden:8], 1)
    """

    __slots__ = ()

    def __init__(self, dims: Iterable[DimensionLike]) -> None:
        super().__init__(_flat(dims))
        object.__setattr__(self, "dims", ListedDims(own_dimension(d) for d in self.dims))

    @property
    def _dims(self) -> list[language.Dimension]:
        return _OwnDims(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "_dims":
            raise AttributeError(
                f"{name} of a shape cannot be set; make another, as mtf.Shape(shape.dims[:-1] + [dim])"
            )
        object.__setattr__(self, "dims", Shape(value).dims)

    def cumprod_to_tensor_axis(self, cumprod: int) -> int | None:
        """The number of the last dimension for which the product of the sizes before it is `cumprod`, or None."""
        return max((i for i, n in enumerate(self.cumprod) if n == cumprod), default=None)

    def rename_dimension(self, old_name: str, new_name: str) -> Shape:
        return own_shape(super().rename_dimension(old_name, new_name))

    def resize_dimension(self, name: str, new_size: int) -> Shape:
        return own_shape(super().resize_dimension(name, new_size))

    def __add__(self, other: ShapeLike | None) -> Shape:
        return Shape([*self.dims, *(() if other is None else convert_to_shape(other))])

    def __sub__(self, other: ShapeLike | None) -> Shape:
        if other is None or isinstance(other, language.Dimension):
            return own_shape(super().__sub__(other))
        removed = convert_to_shape(other)
        return Shape([d for d in self.dims if d not in removed])

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return own_shape(found) if isinstance(found, language.Shape) else found

    def __eq__(self, other: object) -> bool:
        return self.dims == other.dims if isinstance(other, language.Shape) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.dims,))


def own_dimension(dim: language.Dimension) -> Dimension:
    """The dimension as a `Dimension` of this module."""
    return dim if isinstance(dim, Dimension) else Dimension(dim.name, dim.size)


def own_shape(shape: language.Shape) -> Shape:
    """The shape as a `Shape` of this module."""
    return shape if isinstance(shape, Shape) else Shape(shape.dims)


def convert_to_dimension(d: DimensionLike | None) -> Dimension | None:
    """Makes a `Dimension` of a dimension or of a (name, size) pair. None passes through.

    Raises:
      TypeError: it is a number.
      ShapeError: it is a list of several dimensions.
    """
    if isinstance(d, int | float):
        raise TypeError(f"not a dimension: {d!r}; write mtf.Dimension(name, size), or a pair (name, size)")
    if isinstance(d, list):
        return the_dimension(d, "it")
    converted = language.convert_to_dimension(d)
    return None if converted is None else own_dimension(converted)


def convert_to_shape(x: ShapeLike | None) -> Shape:
    """Makes a `Shape` of a shape, a list of dimensions or pairs, or "batch:64 pixels:784". None passes through."""
    if isinstance(x, Iterable) and not isinstance(x, str | language.Shape | language.Dimension):
        return Shape(cast("Iterable[DimensionLike]", x))
    converted = language.convert_to_shape(x)
    return cast("Shape", None) if converted is None else own_shape(converted)


def combined_dimension(dims: Iterable[DimensionLike], name: str | None = None) -> Dimension:
    """One dimension whose size is the product of the sizes. By default it has the name of the first dimension."""
    return own_dimension(language.combined_dimension(dims, name))


def the_dimension(x: DimensionLike | Iterable[DimensionLike], what: str) -> Dimension:
    """The dimension itself, or the only dimension of a list, for arguments that may be either.

    Raises:
      ShapeError: the list has none or several.
    """
    if isinstance(x, language.Dimension):
        return own_dimension(x)
    dims: list[Any] = [x] if _is_pair(x) else list(cast("Iterable[Any]", x))
    if len(dims) != 1:
        raise ShapeError(
            f"{what} is one dimension, and {len(dims)} were given: {dims}; give mtf.combined_dimension of them"
        )
    return cast("Dimension", convert_to_dimension(dims[0]))


def dims_of(x: language.Dimension | Iterable[DimensionLike]) -> list[language.Dimension]:
    """Returns one or several dimensions as a list."""
    return list(language.Shape([x] if isinstance(x, language.Dimension) else x))


def _is_pair(x: Any) -> bool:
    return isinstance(x, list | tuple) and len(x) == 2 and isinstance(x[0], str)


def _flat(dims: Any) -> Any:
    """Flattens lists of dimensions among the dimensions."""
    if not isinstance(dims, list | tuple) or not any(isinstance(d, list | language.Shape) for d in dims):
        return dims
    inner = [d if isinstance(d, list | language.Shape) and not _is_pair(d) else [d] for d in dims]
    return [d for own in inner for d in own]


class _OwnDims(list[language.Dimension]):
    """The list `_dims` of a shape. Changing the list changes the shape."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape.dims)
        self._shape = shape


def _writing(name: str) -> Callable[..., Any]:
    def method(self: _OwnDims, *args: Any, **kwargs: Any) -> Any:
        result = getattr(list, name)(self, *args, **kwargs)
        self._shape._dims = self  # type: ignore[misc]
        return result

    return method


for _name in ("append", "extend", "insert", "remove", "pop", "sort", "reverse", "clear", "__setitem__", "__delitem__"):
    setattr(_OwnDims, _name, _writing(_name))
