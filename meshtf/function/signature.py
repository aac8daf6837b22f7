"""The signature of a program: its inputs, and which sizes of their dimensions are left open."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from meshtf.annotations.shape_pattern import DimensionPattern
from meshtf.annotations.tensor_annotation import TensorAnnotation
from meshtf.call_sites import user_site
from meshtf.contracts.hints import RESULT, hints_of, name_of, tensor_hint, tensor_hints
from meshtf.dimension import Shape
from meshtf.errors import FeedError, GraphError, ShapeError
from meshtf.function.checks import EXAMPLE, check_parameters
from meshtf.function.tensor_spec import TensorSpec

Sizes = tuple[tuple[str, int], ...]
"""The sizes of the open names of a signature, in their order."""


@dataclasses.dataclass(frozen=True, slots=True)
class InputPattern:
    """An input: its dimensions in order, each with a size or the name of one, and its dtype."""

    dims: tuple[DimensionPattern, ...]
    dtype: tf.DType

    def at(self, sizes: Mapping[str, int]) -> InputPattern:
        """The input, with these sizes in place of their names."""
        dims = (
            DimensionPattern(d.name, sizes.get(d.size, d.size)) if isinstance(d.size, str) else d for d in self.dims
        )
        return InputPattern(tuple(dims), self.dtype)

    def shape(self, sizes: Mapping[str, int]) -> Shape:
        """The named shape at these sizes."""
        return Shape([(d.name, sizes[d.size] if isinstance(d.size, str) else d.size) for d in self.dims])

    def __str__(self) -> str:
        return f"[{' '.join(map(str, self.dims))}] {self.dtype.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Signature:
    """The inputs of a program.

    A name is open if no input states its size. "batch" is open if all inputs say "batch"; it is fixed, for all of them,
    if one says "batch:64".

    Attributes:
      inputs: each input, by name.
      hints: the annotations of the function, which its tensors must fit when it is traced.
      open: the names whose sizes a call gives, in order.
    """

    inputs: Mapping[str, InputPattern]
    hints: Mapping[str, Any]
    open: tuple[str, ...]

    def specs(self, sizes: Sizes) -> dict[str, TensorSpec]:
        """The inputs at some sizes of the open names."""
        known = dict(sizes)
        return {name: TensorSpec(x.shape(known), x.dtype) for name, x in self.inputs.items()}

    @property
    def open_dimensions(self) -> frozenset[str]:
        """The names of all dimensions that have an open size."""
        return frozenset(d.name for x in self.inputs.values() for d in x.dims if d.size in self.open)

    def sizes_of(self, feeds: Mapping[str, Any], program: str) -> Sizes:
        """The sizes of the open names, from the arrays of a call.

        Raises:
          FeedError: sizes disagree, or one is unknown. The message lists all faults.
        """
        found: dict[str, tuple[int, str]] = {}
        faults: list[str] = []
        for name, pattern in self.inputs.items():
            if any(d.size in self.open for d in pattern.dims):
                self._find_sizes(name, pattern, feeds, found, faults)
        if faults:
            raise FeedError("\n  ".join([f'program "{program}" was given wrong inputs:', *faults, f"at {user_site()}"]))
        return tuple((name, found[name][0]) for name in self.open)

    def _find_sizes(
        self,
        name: str,
        pattern: InputPattern,
        feeds: Mapping[str, Any],
        found: dict[str, tuple[int, str]],
        faults: list[str],
    ) -> None:
        if name not in feeds:
            faults.append(f'input "{name}" {pattern} is missing')
            return
        own = sizes_of_array(feeds[name])
        if own is None or len(own) != len(pattern.dims):
            shown = "a shape that is not known" if own is None else f"shape {own}"
            faults.append(f'input "{name}" must be {pattern}, and has {shown}')
            return
        sizes = list(zip(pattern.dims, own, strict=True))
        if any(n not in (d.size, None) for d, n in sizes if isinstance(d.size, int)):
            faults.append(f'input "{name}" must be {pattern}, and has shape {own}')
        for dim, size in sizes:
            if dim.size not in self.open:
                continue
            if size is None:
                faults.append(
                    f'input "{name}" {pattern} has a "{dim.name}" of unknown size; give the program the size with '
                    f"step.at({dim.variable}=...)"
                )
                size = -1
            # An unknown size, -1, contradicts no other. It was already added to the faults above.
            known, by = found.setdefault(dim.variable, (size, name))
            if known != size and -1 not in (known, size):
                faults.append(f'input "{name}" has "{dim.name}:{size}", and {dim.variable} is {known} in "{by}"')


def sizes_of_array(value: Any) -> list[int | None] | None:
    """The sizes of an array or a tensor. An unknown size is None. If no size is known, the result is None."""
    if isinstance(value, tf.Tensor | tf.Variable):
        return None if value.shape.rank is None else value.shape.as_list()
    try:
        return list(np.shape(value))
    except ValueError:
        return None


def signature_of(fn: Callable[..., Any], inputs: Mapping[str, TensorSpec | TensorAnnotation] | None) -> Signature:
    """The signature of a program.

    Args:
      fn: the program's function. Its annotations are the inputs if `inputs` is None.
      inputs: each input, as a spec or an annotation.

    Raises:
      GraphError: the function's parameters are not the inputs, or an input lacks a shape or a dtype.
      ShapeError: one name has two sizes.
    """
    hints = _hints(fn)
    if inputs is None:
        inputs = _annotated_inputs(fn, hints)
    check_parameters(fn, inputs)
    patterns = {name: _input_pattern(name, given) for name, given in inputs.items()}
    named = {d.size: None for x in patterns.values() for d in x.dims if isinstance(d.size, str)}
    annotated = {d.name for n, x in patterns.items() if not isinstance(inputs[n], TensorSpec) for d in x.dims}
    fixed: dict[str, tuple[int, str]] = {}
    for name, dim, own in ((n, d.name, d.size) for n, x in patterns.items() for d in x.dims):
        if isinstance(own, str):
            continue
        size, by = fixed.setdefault(dim, (own, name))
        # Inputs that are specs may have one name in two sizes, if they never meet.
        if size != own and dim in annotated.union(named):
            raise ShapeError(f'"{dim}" has size {size} in input "{by}" and {own} in "{name}"')
    known = {name: size for name, (size, _) in fixed.items()}
    known_patterns = {name: pattern.at(known) for name, pattern in patterns.items()}
    return Signature(known_patterns, hints, tuple(name for name in named if name not in known))


def _hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function that describe tensors."""
    try:
        inspect.signature(fn)
    except ValueError:  # a function without named parameters, which `check_parameters` rejects
        return {}
    found = hints_of(fn, needs_all=False)
    return {name: hint for name, hint in found.items() if next(tensor_hints(hint), None) is not None}


def _annotated_inputs(fn: Callable[..., Any], hints: Mapping[str, Any]) -> dict[str, TensorAnnotation]:
    found: dict[str, TensorAnnotation] = {}
    for name, hint in hints.items():
        if name == RESULT:
            continue
        own = tensor_hint(hint)
        if own is None:
            raise GraphError(
                f'"{name}" of {name_of(fn)} is annotated with {hint}, but an input must be one tensor: {EXAMPLE}'
            )
        if own.dtype is None and own.pattern is None:
            continue  # a plain mtf.Tensor states neither shape nor dtype, so it defines no input
        found[name] = own
    return found


def _input_pattern(name: str, given: TensorSpec | TensorAnnotation) -> InputPattern:
    if isinstance(given, TensorSpec):
        return InputPattern(tuple(DimensionPattern(d.name, d.size) for d in given.shape), given.dtype)
    if given.dtype is None or given.pattern is None or given.pattern.after is not None:
        lacks = "element type" if given.dtype is None else "shape"
        raise GraphError(f'input "{name}", {given}, has no {lacks} of its own, which an input needs: {EXAMPLE}')
    return InputPattern(given.pattern.dims, given.dtype)
