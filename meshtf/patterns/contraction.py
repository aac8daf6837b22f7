"""Patterns of einsum: "batch d_model, d_model d_ff -> batch d_ff"."""

from __future__ import annotations

import functools

from meshtf.dimension import Dimension, Shape
from meshtf.dimension.dimension import needs_size
from meshtf.errors import counted, nearest
from meshtf.patterns.terms import Factor, Pattern, Rest, Term, parse


@functools.lru_cache(maxsize=1024)
def einsum_shape(text: str, shapes: tuple[Shape, ...]) -> Shape | None:
    """The shape of the result that a pattern names, or None if it has no arrow.

    Raises:
      ShapeError: the pattern does not fit the operands.
    """
    pattern = parse(text)
    if len(pattern.operands) != len(shapes):
        raise pattern.fault(
            Term((), pattern.operands[0].start, pattern.operands[-1].start + pattern.operands[-1].length),
            f"the pattern has {counted(len(pattern.operands), 'operand')}, but "
            f"{counted(len(shapes), 'tensor is', 'tensors are')} given",
        )
    rest: dict[str, Dimension] = {}
    for number, (term, shape) in enumerate(zip(pattern.operands, shapes, strict=True)):
        rest |= {d.name: d for d in _rest_of(pattern, term, shape, number) if d.name not in rest}
    return None if pattern.result is None else _result(pattern, pattern.result, shapes, list(rest.values()))


def _rest_of(pattern: Pattern, term: Term, shape: Shape, number: int) -> list[Dimension]:
    """The dimensions of an operand that `...` stands for."""
    named = _names(pattern, term)
    for item in named:
        if not shape.has(item.name):
            known = nearest(item.name, shape.dimension_names)
            raise pattern.fault(item, f'operand {number} [{shape}] has no dimension "{item.name}"{known}')
        _check_size(pattern, item, shape[item.name].size)
    left = [d for d in shape if d.name not in {item.name for item in named}]
    if left and not _has_rest(term):
        more = ", ".join(f'"{d.name}"' for d in left)
        raise pattern.fault(term, f'operand {number} [{shape}] has {more} too; name each dimension, or write "..."')
    return left


def _result(pattern: Pattern, term: Term, shapes: tuple[Shape, ...], rest: list[Dimension]) -> Shape:
    known = {d.name: d for shape in reversed(shapes) for d in shape}
    named = {item.name: _result_dimension(pattern, item, known) for item in _names(pattern, term)}
    unnamed = [d for d in rest if d.name not in named]
    if unnamed and not _has_rest(term):
        dims = " ".join(map(str, unnamed))
        raise pattern.fault(term, f'"..." stands for [{dims}]; write "..." on the right too, or name what is summed')
    found: list[Dimension] = []
    for item in term.items:
        found += unnamed if isinstance(item, Rest) else [named[item.name]] if isinstance(item, Factor) else []
    return Shape(found)


def _result_dimension(pattern: Pattern, item: Factor, known: dict[str, Dimension]) -> Dimension:
    if item.name in known:
        _check_size(pattern, item, known[item.name].size)
        return known[item.name]
    if item.size is None:
        raise pattern.fault(item, needs_size(f'no operand has dimension "{item.name}"', item.name, known))
    return Dimension(item.name, item.size)


def _names(pattern: Pattern, term: Term) -> list[Factor]:
    """The names of a term, each of which must occur once."""
    found: dict[str, Factor] = {}
    for item in term.items:
        if isinstance(item, Rest):
            continue
        if not isinstance(item, Factor) or not item.name:
            raise pattern.fault(item, "einsum takes names of dimensions; split and merge them with mtf.rearrange")
        if item.name in found:
            raise pattern.fault(item, f'"{item.name}" stands twice')
        found[item.name] = item
    return list(found.values())


def _has_rest(term: Term) -> bool:
    return any(isinstance(item, Rest) for item in term.items)


def _check_size(pattern: Pattern, item: Factor, size: int) -> None:
    if item.size not in (None, size):
        raise pattern.fault(item, f'dimension "{item.name}" has size {size}, not {item.size}')
