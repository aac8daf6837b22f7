"""The left side of a pattern, bound to a tensor's dimensions by position."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from meshtf.dimension import Dimension, Shape
from meshtf.errors import counted, nearest
from meshtf.patterns.terms import Factor, Group, Item, Pattern, Rest


class LeftSide:
    """The dimensions of a tensor after its groups are split.

    Attributes:
      before: these dimensions, by name.
      places: the part of the pattern that each of them comes from, by name.
      rest: the dimensions that `...` stands for; None if the left side has no `...`.
    """

    def __init__(self, pattern: Pattern, shape: Shape, sizes: Mapping[str, int], reduces: bool) -> None:
        self._pattern, self._shape, self._sizes, self._reduces = pattern, shape, sizes, reduces
        self.before: dict[str, Dimension] = {}
        self.places: dict[str, Item] = {}
        self.rest: list[Dimension] | None = None
        for item, dims in self._bound():
            if isinstance(item, Rest):
                self.rest = dims
                self._add_all(item, dims)
            else:
                self._bind(item, dims[0])

    def _bound(self) -> list[tuple[Item, list[Dimension]]]:
        """Each part of the left side, with the dimensions at its place."""
        term = self._pattern.operands[0]
        items, dims = list(term.items), list(self._shape)
        more = len(dims) - sum(not isinstance(item, Rest) for item in items)
        has_rest = any(isinstance(item, Rest) for item in items)
        if more < 0 or (more and not has_rest):
            count, wanted = counted(len(dims), "dimension"), len(dims) - more
            hint = '; name each in order, or write "..." for several' if more > 0 else ""
            raise self._pattern.fault(term, f"[{self._shape}] has {count}, but the left side has {wanted}{hint}")
        position = 0
        found: list[tuple[Item, list[Dimension]]] = []
        for item in items:
            count = more if isinstance(item, Rest) else 1
            found.append((item, dims[position : position + count]))
            position += count
        return found

    def _bind(self, item: Factor | Group, dim: Dimension) -> None:
        if isinstance(item, Group):
            self._split(item, dim)
        elif item.name:
            self._check_name(item, item.name, dim)
            if self._size(item) not in (None, dim.size):
                raise self._pattern.fault(item, f'dimension "{dim.name}" has size {dim.size}, not {self._size(item)}')
            self._add_all(item, [dim])
        else:
            if item.size != dim.size:
                raise self._pattern.fault(item, f'dimension "{dim.name}" has size {dim.size}, not {item.size}')
            self._add_anonymous(item, dim)

    def _split(self, group: Group, dim: Dimension) -> None:
        """Splits a dimension into factors. The size of one factor may be inferred."""
        if group.label:
            self._check_name(group, group.label, dim)
        factors = [part for part in group.parts if isinstance(part, Factor)]
        if len(factors) < len(group.parts):
            raise self._pattern.fault(group, '"..." cannot be a factor of a dimension; name the factors')
        sizes = [self._size(factor) for factor in factors]
        sizes = self._with_inferred(group, factors, sizes, dim)
        for factor, size in zip(factors, sizes, strict=True):
            if factor.name:
                self._add_all(factor, [Dimension(factor.name, size)])
            else:
                self._add_anonymous(factor, Dimension(f"{dim.name}_{size}", size))

    def _with_inferred(self, group: Group, factors: list[Factor], sizes: list[int | None], dim: Dimension) -> list[int]:
        known = math.prod(size for size in sizes if size is not None)
        unknown = [factor for factor, size in zip(factors, sizes, strict=True) if size is None]
        if len(unknown) > 1:
            names = " and ".join(f'"{factor.name}"' for factor in unknown)
            example = f"{unknown[0].name}=..."
            raise self._pattern.fault(group, f'the sizes of {names} in "{dim}" are not known; give one, as {example}')
        left, remainder = divmod(dim.size, known) if known else (0, dim.size)
        if remainder or (not unknown and left != 1 and not (left == 0 == dim.size == known)):
            given = " * ".join(str(size) for size in sizes if size is not None)
            verb = "does not divide into" if unknown else "is not"
            raise self._pattern.fault(group, f'dimension "{dim.name}" of size {dim.size} {verb} {given}')
        return [left if size is None else size for size in sizes]

    def _size(self, factor: Factor) -> int | None:
        """The size that the pattern or the caller gives."""
        given = self._sizes.get(factor.name)
        if None not in (given, factor.size) and given != factor.size:
            raise self._pattern.fault(factor, f'"{factor.name}" has size {factor.size} here, but {given} is given too')
        return given if factor.size is None else factor.size

    def _check_name(self, item: Factor | Group, name: str, dim: Dimension) -> None:
        if name == dim.name:
            return
        place = self._shape.axis(dim)
        is_there = self._shape.has(name)
        known = nearest(name, self._shape.dimension_names)
        hint = "; list dimensions in the tensor's order" if is_there else known
        raise self._pattern.fault(item, f'dimension {place} of [{self._shape}] is "{dim.name}", not "{name}"{hint}')

    def _add_anonymous(self, factor: Factor, dim: Dimension) -> None:
        """Adds a dimension that the pattern does not name, if it is reduced. Otherwise its size must be 1."""
        if self._reduces:
            taken = {*self.before, *self._shape.dimension_names, *self._pattern.names}
            is_own = self._shape.has(dim) and dim.name not in self.before
            name = dim.name if is_own else unused(dim.name, taken)
            self._add_all(factor, [Dimension(name, dim.size)])
        elif dim.size != 1:
            raise self._pattern.fault(factor, f"a factor of {dim.size} needs a name; to reduce it, use mtf.reduce")

    def _add_all(self, item: Item, dims: list[Dimension]) -> None:
        for dim in dims:
            if dim.name in self.before:
                raise self._pattern.fault(item, f'"{dim.name}" would be two dimensions; choose another name')
            self.before[dim.name], self.places[dim.name] = dim, item


def unused(base: str, taken: Collection[str]) -> str:
    """`base`, with underscores appended until it is not taken."""
    while base in taken:
        base += "_"
    return base
