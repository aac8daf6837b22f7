"""Patterns of rearrange and reduce: which shapes a tensor passes through.

"batch (h 2) (w 2) c -> batch (image: h w) c"     of [batch:8 h:6 w:4 c:3]

before     [batch:8 h:3 h_2:2 w:2 w_2:2 c:3]     each group on the left is split
kept       [batch:8 h:3 w:2 c:3]                 what the right side lacks is reduced
repeated   [batch:8 h:3 w:2 c:3]                 new dimensions are repeated
after      [batch:8 image:6 c:3]                 each group on the right is merged
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Mapping

from meshtf.dimension import Dimension, Shape
from meshtf.dimension.dimension import needs_size
from meshtf.errors import ShapeError, nearest
from meshtf.patterns.left_side import LeftSide, unused
from meshtf.patterns.terms import Factor, Group, Pattern, Rest, Term, parse
from meshtf.patterns.tokens import checked_text


@dataclasses.dataclass(frozen=True, slots=True)
class Rearrangement:
    """The shapes that a tensor passes through, from first to last. The module's head shows an example."""

    before: Shape
    kept: Shape
    repeated: Shape
    after: Shape


def rearrangement(text: str, shape: Shape, sizes: Mapping[str, int], *, reduces: bool) -> Rearrangement:
    """The plan of a pattern for a tensor of this shape.

    Args:
      text: the pattern.
      shape: the tensor's shape.
      sizes: the sizes that the caller gives by name.
      reduces: whether dimensions that only the left side has are reduced. Otherwise they are an error.

    Raises:
      ShapeError: the pattern does not fit the shape.
    """
    checked_text(text)
    return _rearrangement(text, shape, tuple((name, _size(name, size)) for name, size in sizes.items()), reduces)


@functools.lru_cache(maxsize=1024)
def _rearrangement(text: str, shape: Shape, sizes: tuple[tuple[str, int], ...], reduces: bool) -> Rearrangement:
    pattern = parse(text)
    if pattern.result is None:
        end = pattern.operands[-1].start + pattern.operands[-1].length
        raise pattern.fault(Term((), end, 1), 'the pattern needs "->" and the result\'s dimensions')
    if len(pattern.operands) > 1:
        raise pattern.fault(pattern.operands[1], "only one tensor is rearranged, but this is a second one")
    for name, _ in sizes:
        if name not in pattern.names:
            known = nearest(name, pattern.names)
            raise ShapeError(f'a size is given for "{name}", which is not in the pattern{known}')
    left = LeftSide(pattern, shape, dict(sizes), reduces)
    return _RightSide(pattern, pattern.result, left, dict(sizes)).plan(reduces)


class _RightSide:
    """The right side of a pattern: the result's dimensions, built from the left side's."""

    def __init__(self, pattern: Pattern, term: Term, left: LeftSide, sizes: Mapping[str, int]) -> None:
        self._pattern, self._left, self._sizes = pattern, left, sizes
        self._repeated: dict[str, Dimension] = {}
        after: dict[str, Dimension] = {}
        for item in term.items:
            for dim in self._results(item):
                if dim.name in after:
                    raise pattern.fault(item, f'the result would have dimension "{dim.name}" twice')
                after[dim.name] = dim
        self._after = Shape(after.values())

    def plan(self, reduces: bool) -> Rearrangement:
        if not reduces:
            self._check_all_used()
        before, repeated = Shape(self._left.before.values()), Shape(self._repeated.values())
        kept = Shape([d for d in repeated if d.name in self._left.before])
        return Rearrangement(before, kept, repeated, self._after)

    def _results(self, item: Factor | Rest | Group) -> list[Dimension]:
        """The result's dimensions that a part of the right side makes."""
        if not isinstance(item, Group):
            if isinstance(item, Factor) and not item.name:
                raise self._pattern.fault(item, f"a dimension needs a name: write name:{item.size}")
            return self._parts(item)
        if not item.label:
            inside = self._pattern.text[item.start + 1 : item.start + item.length - 1].strip()
            raise self._pattern.fault(item, f"a merged dimension needs a name: write (name: {inside})")
        parts = [dim for part in item.parts for dim in self._parts(part)]
        return [Dimension(item.label, Shape(parts).size)]

    def _parts(self, item: Factor | Rest) -> list[Dimension]:
        """The dimensions of a name, a number or `...`, each of which is used once."""
        found = self._rest(item) if isinstance(item, Rest) else [self._factor(item)]
        for dim in found:
            if dim.name in self._repeated:
                raise self._pattern.fault(item, f'"{dim.name}" stands twice on the right')
            self._repeated[dim.name] = dim
        return found

    def _rest(self, item: Rest) -> list[Dimension]:
        if self._left.rest is None:
            raise self._pattern.fault(item, '"..." is on the right only; write it on the left too')
        return self._left.rest

    def _factor(self, item: Factor) -> Dimension:
        if not item.name:
            taken = {*self._left.before, *self._repeated}
            return Dimension(unused(f"repeats_{item.size}", taken), item.size or 0)
        own, size = self._left.before.get(item.name), item.size
        size = self._sizes.get(item.name) if size is None else size
        if own is not None:
            if size not in (None, own.size):
                raise self._pattern.fault(item, f'"{item.name}" has size {own.size} on the left, not {size}')
            return own
        if size is None:
            fact = f'"{item.name}" is not on the left'
            raise self._pattern.fault(item, needs_size(fact, item.name, self._left.before))
        return Dimension(item.name, size)

    def _check_all_used(self) -> None:
        for name, item in self._left.places.items():
            if name not in self._repeated:
                is_rest = isinstance(item, Rest)
                what = f'"..." stands for "{name}", and' if is_rest else f'"{name}"'
                raise self._pattern.fault(item, f"{what} is not on the right; to reduce it, use mtf.reduce")


def _size(name: str, size: object) -> int:
    try:
        number = -1 if isinstance(size, bool) else operator.index(size)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if number < 0:
        raise ShapeError(f'the size of "{name}" must be a whole number of at least 0, not {size!r}')
    return number
