"""Dimensions of a tensor as methods take them: by name or as objects, one or several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeAlias, cast

from meshtf.dimension import Dimension, Shape
from meshtf.errors import ShapeError

DimensionName: TypeAlias = "str | Dimension"
DimensionNames: TypeAlias = "str | Dimension | Iterable[DimensionName]"
"""One dimension, or several: a list, or names in one text, as "heads d_kv"."""


def dimensions_of(shape: Shape, names: Iterable[DimensionNames]) -> list[Dimension]:
    """The dimensions of the shape that the names mean, in this order.

    Raises:
      ShapeError: the shape lacks one, one is named twice, or what is given is no name.
    """
    found = [shape[shape.axis(name)] for given in names for name in _each(shape, given)]
    for i, dim in enumerate(found):
        if dim in found[:i]:
            raise ShapeError(f'dimension "{dim.name}" is named twice; name each once')
    return found


def one_dimension_of(shape: Shape, name: object) -> Dimension:
    """The one dimension of the shape that is meant.

    Raises:
      ShapeError: the shape lacks it, or what is given is no name.
    """
    if not isinstance(name, str | Dimension):
        raise _no_name(shape, name)
    return shape[shape.axis(name)]


def _each(shape: Shape, given: object) -> Iterator[DimensionName]:
    if isinstance(given, str):
        yield from given.split() or [given]
    elif isinstance(given, Dimension):
        yield given
    elif isinstance(given, Iterable):
        for name in cast("Iterable[object]", given):
            if not isinstance(name, str | Dimension):
                raise _no_name(shape, name)
            yield name
    else:
        raise _no_name(shape, given)


def _no_name(shape: Shape, given: object) -> ShapeError:
    names = ", ".join(f'"{name}"' for name in shape.dimension_names)
    have = f"[{shape}] has {names}" if names else "the tensor is a scalar and has none"
    return ShapeError(f"dimensions are given by name, not as {given!r}; {have}")
