"""Compares tensors with their annotations, and collects all mismatches."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Union, get_args, get_origin

from meshtf.annotations.shape_pattern import DimensionPattern, ShapePattern
from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.contracts.hints import tensor_hint, tensor_hints
from meshtf.dimension import Dimension, Shape
from meshtf.errors import nearest
from meshtf.graph.tensor import Tensor

_NUMBERS: dict[Any, Any] = {float: (float, int), complex: (complex, float, int)}
"""The classes whose values an annotation allows, where these are more than its own."""


@dataclasses.dataclass(frozen=True, slots=True)
class KnownSize:
    """A size, and the tensor that fixed it, such as "images [batch:64 pixels:784]"."""

    size: int
    fixed_by: str


class Matching:
    """Compares the tensors of one call with their annotations.

    Attributes:
      sizes: the size of each name so far. The first tensor that has the name fixes its size.
      faults: every mismatch so far, as a line of text.
    """

    def __init__(self, *, in_order: bool = False) -> None:
        self.sizes: dict[str, KnownSize] = {}
        self.faults: list[str] = []
        self._in_order = in_order

    def compare(self, hint: object, value: Any, what: str) -> None:
        """Compares a value with its annotation. A list, a tuple or a dict is compared part by part.

        Args:
          hint: an annotation. It is ignored if it has no tensors.
          value: the value that it annotates.
          what: names the value in messages.
        """
        annotation = tensor_hint(hint)
        if annotation is not None:
            self._compare_tensor(annotation, value, what)
        elif next(tensor_hints(hint), None) is not None:
            self._compare_parts(hint, value, what)

    def _compare_parts(self, hint: object, value: Any, what: str) -> None:
        origin, parts = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            self._compare_choice(parts, value, what)
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            if isinstance(value, Mapping):
                for key, part in value.items():
                    self.compare(parts[-1], part, f"{what}[{key!r}]")
            else:
                self.faults.append(f"{what} is a {type(value).__name__}, and not a dict of tensors")
        elif isinstance(value, Iterator):
            pass  # reading its parts would use them up
        elif not isinstance(value, list | tuple):
            self.faults.append(f"{what} is {_described(value)}, and not a list or a tuple of tensors")
        elif origin is tuple and parts[-1] is not Ellipsis:
            if len(value) != len(parts):
                self.faults.append(f"{what} has {len(value)} parts, and not {len(parts)}")
            for i, (part, own) in enumerate(zip(parts, value, strict=False)):
                self.compare(part, own, f"{what}[{i}]")
        else:
            for i, own in enumerate(value):
                self.compare(parts[0], own, f"{what}[{i}]")

    def _compare_choice(self, choices: Sequence[object], value: Any, what: str) -> None:
        """Compares with the first choice of a union that fits, or else with the first choice that has a tensor."""
        with_tensors = [c for c in choices if next(tensor_hints(c), None) is not None]
        for choice in with_tensors:
            attempt = Matching(in_order=self._in_order)
            attempt.sizes.update(self.sizes)
            attempt.compare(choice, value, what)
            if not attempt.faults:
                self.sizes = attempt.sizes
                return
        if not any(_may_be(value, c) for c in choices if c not in with_tensors):
            self.compare(with_tensors[0], value, what)

    def _compare_tensor(self, annotation: TensorAnnotation, value: Any, what: str) -> None:
        if not isinstance(value, Tensor):
            self.faults.append(f"{what} is {_described(value)}, and not an mtf.Tensor, {annotation}")
            return
        shown = f"{what} [{value.shape}]"
        if annotation.dtype is not None and value.dtype != annotation.dtype:
            self.faults.append(
                f"{shown} is {value.dtype.name}, and not {annotation.dtype.name}; convert it with mtf.cast"
            )
        if annotation.pattern is None:
            return
        for dim in annotation.pattern.dims:
            if value.shape.has(dim.name):
                self._compare_size(dim, value.shape.get_dim_by_name(dim.name), shown)
        if fault := self._misfit(annotation.pattern, value.shape):
            self.faults.append(f'{shown} does not fit "{annotation.pattern}": {fault}')

    def _misfit(self, pattern: ShapePattern, shape: Shape) -> str:
        """Why the names of a shape do not match the pattern; empty if they do."""
        wanted = [d.name for d in pattern.dims]
        extra = [n for n in shape.dimension_names if n not in wanted]
        if missing := [n for n in wanted if not shape.has(n)]:
            return f'it lacks "{missing[0]}"{nearest(missing[0], extra)}'
        if extra and pattern.after is None:
            return f'it has "{extra[0]}", too'
        before, after = len(pattern.before), len(pattern.after or ())
        own = shape.dimension_names
        if self._in_order and own[:before] + own[len(own) - after :] != wanted:
            return f'the order is another; write mtf.transpose(x, "{" ".join(wanted)}")'
        return ""

    def _compare_size(self, wanted: DimensionPattern, own: Dimension, shown: str) -> None:
        if isinstance(wanted.size, int) and own.size != wanted.size:
            self.faults.append(f'{shown} has "{own}", and the annotation says {wanted.size}')
            return
        known = self.sizes.setdefault(wanted.variable, KnownSize(own.size, shown))
        if known.size != own.size:
            self.faults.append(f'{shown} has "{own}", and {wanted.variable} is {known.size}: {known.fixed_by} fixed it')


def _may_be(value: Any, choice: Any) -> bool:
    """Whether a value may have an annotation without tensors. If no class says that, anything but a tensor may."""
    kind = get_origin(choice) or choice
    try:
        return isinstance(value, _NUMBERS.get(kind, kind))
    except TypeError:  # for Any, Literal["none"], a protocol and the like
        return not isinstance(value, Tensor)


def _described(value: object) -> str:
    return "None" if value is None else f"a {type(value).__module__}.{type(value).__name__}".replace("builtins.", "")
