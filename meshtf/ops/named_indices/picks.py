"""The plan for the brackets of `x[...]`: an index, a range or an index tensor for each dimension."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.errors import IndexRangeError, ShapeError, UsageError
from meshtf.graph.tensor import Tensor
from meshtf.graph.unnamed_arrays import how_to_name
from meshtf.ops.algebra.reduction import reduced_dimension


@dataclasses.dataclass(frozen=True)
class Pick:
    """The elements of one dimension that brackets choose.

    index: a number from 0 on, a range of such numbers, or an index tensor.
    """

    dim: Dimension
    index: int | range | Tensor

    @property
    def own_dims(self) -> tuple[Dimension, ...]:
        """The dimensions of an index tensor."""
        return tuple(self.index.shape) if isinstance(self.index, Tensor) else ()

    def __str__(self) -> str:
        return f'"{self.dim.name}", {self.index}'


def picks(x: Tensor, brackets: object) -> tuple[Pick, ...]:
    """The plan for brackets after x.

    Raises:
      ShapeError: x lacks a dimension, one is indexed twice, or an index is no number, slice or tensor.
      IndexRangeError: an index that is already known is outside its dimension.
      UsageError: an index without its dimension, a mask, or a slice whose ends the program computes.
    """
    found = tuple(_pick(x, *pair) for pair in _pairs(x, brackets))
    names = [pick.dim.name for pick in found]
    for name in names:
        if names.count(name) > 1:
            raise ShapeError(f'dimension "{name}" is indexed twice in the same brackets; use x[...][...]')
    for pick in found:
        _check_apart(pick, names)
    return found


def picked_shape(shape: Shape, chosen: Iterable[Pick]) -> Shape:
    """The shape of `x[...]`. The new dimensions of an index tensor replace the dimension that it indexes."""
    for pick in chosen:
        position = shape.axis(pick.dim)
        new = [d for d in pick.own_dims if not shape.has(d)]
        if isinstance(pick.index, range):
            new = [Dimension(pick.dim.name, len(pick.index))]
        shape = Shape([*shape.dims[:position], *new, *shape.dims[position + 1 :]])
    return shape


def _check_apart(pick: Pick, indexed: list[str]) -> None:
    """Checks that no index tensor has a dimension that the same brackets index. Their order would then matter."""
    for dim in pick.own_dims:
        if dim.name == pick.dim.name:
            raise ShapeError(
                f'the index [{Shape(pick.own_dims)}] along "{dim.name}" has that dimension itself; give it another '
                f'name, as in ids.rename({dim.name}="{dim.name}_of_result")'
            )
        if dim.name in indexed:
            raise ShapeError(
                f'the index [{Shape(pick.own_dims)}] along "{pick.dim.name}" has dimension "{dim.name}", which the '
                f"same brackets index; index one after the other, as in x[...][...]"
            )


def _pairs(x: Tensor, brackets: object) -> Iterable[tuple[object, object]]:
    if isinstance(brackets, Mapping):
        return cast("Mapping[object, object]", brackets).items()
    parts = cast("tuple[Any, ...]", brackets) if isinstance(brackets, tuple) else (brackets,)
    names = parts[::2]
    if len(parts) % 2 == 0 and parts and all(isinstance(name, str | Dimension) for name in names):
        return zip(names, parts[1::2], strict=True)
    raise UsageError(_without_names(x, parts))


def _without_names(x: Tensor, parts: tuple[Any, ...]) -> str:
    first = x.shape[0].name if x.shape.ndims else "length"
    for part in parts:
        if isinstance(part, Tensor) and part.dtype == tf.bool:
            return _mask(part)
    last = parts[-1] if parts else None
    if isinstance(last, str | Dimension):
        name = last.name if isinstance(last, Dimension) else last
        return f'"{name}" has no index; write x["{name}", 0], x["{name}", 1:3] or x["{name}", ids]'
    shown = _shown(cast("Any", last)) if isinstance(last, int | slice) else "0"
    return f'{x} cannot be indexed by position; name the dimension, as in x["{first}", {shown}]'


def _mask(mask: Tensor) -> str:
    return (
        f"{mask} is a mask, and the number of elements that it keeps is unknown while the graph is built; "
        f"keep the shape with mtf.where(mask, x, 0)"
    )


def _pick(x: Tensor, name: object, index: object) -> Pick:
    if not isinstance(name, str | Dimension):
        raise ShapeError(f"dimensions are given by name, not as {name!r}; [{x.shape}] has {x.shape.dimension_names}")
    dim = reduced_dimension(x, name)
    if isinstance(index, Tensor):
        if index.dtype == tf.bool:
            raise UsageError(_mask(index))
        return Pick(dim, index)
    if isinstance(index, slice):
        return Pick(dim, _range(dim, cast("Any", index)))
    return Pick(dim, _number(dim, index))


def _number(dim: Dimension, index: object) -> int:
    if how := _array_of_indices(index):
        raise UsageError(f'an index array has no dimension names; {how}, and x["{dim.name}", indices] looks them up')
    number = _whole(index)
    if number is None or isinstance(index, bool | np.bool_):
        raise ShapeError(f'an index along "{dim.name}" is a whole number, a slice or a tensor, not {index!r}')
    if not -dim.size <= number < dim.size:
        span = f"indices go from {-dim.size} to {dim.size - 1}" if dim.size else "it has no elements"
        raise IndexRangeError(f'index {number} leads out of dimension "{dim.name}" of size {dim.size}; {span}')
    return number % dim.size


def _range(dim: Dimension, given: slice) -> range:
    parts = (given.start, given.stop, given.step)
    if any(isinstance(part, Tensor) for part in parts):
        raise UsageError(
            f'the size of a slice must be known now, and x["{dim.name}", {_shown(given)}] has an end that the program '
            f'computes; use mtf.dynamic_slice(x, begin, size, "{dim.name}")'
        )
    for part in parts:
        if part is not None and (_whole(part) is None or isinstance(part, bool)):
            raise ShapeError(f'a slice along "{dim.name}" has whole numbers, not {part!r}')
    if given.step is not None and _whole(given.step) == 0:
        raise ShapeError(f'the step of a slice along "{dim.name}" is 0; leave it out, or give another number')
    for part in (given.start, given.stop):
        if part is not None and not -dim.size <= cast("int", _whole(part)) <= dim.size:
            raise IndexRangeError(
                f'the slice {_shown(given)} leads out of dimension "{dim.name}" of size {dim.size}; leave an end out '
                f"to go as far as the dimension does"
            )
    return range(*given.indices(dim.size))


def _array_of_indices(index: object) -> str:
    """How to name the dimensions of indices that are no tensor; empty if they are no array."""
    how = how_to_name(index, None, tf.int32)
    return "" if _whole(index) is not None else how


def _whole(x: object) -> int | None:
    try:
        return operator.index(x)  # type: ignore[arg-type]
    except TypeError:
        return None


def _shown(index: Any) -> str:
    """A number or slice as it is written in brackets."""
    if isinstance(index, int):
        return repr(index)
    parts = ["" if part is None else str(getattr(part, "name", part)) for part in (index.start, index.stop)]
    return ":".join(parts if index.step is None else [*parts, str(index.step)])
