"""Finds segments that do the same work on other values, as the layers of a model do. One traced function serves them
all.

Twelve layers, each (read w, matmul, add, relu), are twelve segments. Their instructions are the same if values are
numbered in the order in which they appear, and variables likewise. So they have one key, TensorFlow traces the first,
and the other eleven call its function with their own slices and variables.

Equal keys must mean equal traces. So anything that cannot be compared ends the comparison, and that segment is traced
by itself. Examples are a user's function, a large array and an object of another package.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Hashable, Mapping
from typing import Any, cast

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.lowering.emit.plan_facts import PlanFacts
from meshtf.lowering.processors.segments import Segment
from meshtf.planning.plan import Compute, Instruction, ReadVariable, Value

_LARGEST = 1024
"""The most bytes of an array that is compared."""
_PURE = frozenset(("meshtf", "numpy", "tensorflow"))
"""Packages whose functions always do the same."""


def likeness(segment: Segment, facts: PlanFacts) -> Hashable | None:
    """A key that is equal for segments whose traces differ only in names of operations; None if that is not known.

    It compares the instructions one by one, how values pass from one to the next, and what their emission closes over.
    Instructions with equal keys come from one line of the user's code, so that errors name the right line.
    """
    if segment.feeds or segment.ends_program:
        return None
    numbers = {v: n for n, v in enumerate(segment.entering)}
    variables = {name: n for n, name in enumerate(segment.variables)}
    parts: list[Hashable] = [tuple(map(_spec_of, segment.entering)), len(variables), segment.axes]
    try:
        for instruction in segment.instructions:
            parts.append(_of_instruction(instruction, facts, numbers, variables))
            for value in instruction.outputs:
                numbers[value] = len(numbers)
        return (*parts, tuple(numbers[v] for v in segment.leaving))
    except _UnknownError:
        return None


class _UnknownError(Exception):
    """Ends the comparison of a segment."""


def _of_instruction(
    instruction: Instruction, facts: PlanFacts, numbers: Mapping[Value, int], variables: Mapping[str, int]
) -> Hashable:
    awaited = tuple(numbers.get(v) for v in facts.awaited_by(instruction))
    made = tuple(map(_spec_of, instruction.outputs))
    if isinstance(instruction, ReadVariable):
        is_read = instruction.output not in facts.unread
        return "read", variables[instruction.name] if is_read else None, awaited, made
    if not isinstance(instruction, Compute) or instruction.operation.why_not_compiled:
        raise _UnknownError
    in_place = facts.in_place.get(instruction, {})
    written = tuple((n, result, variables[name]) for n, (result, name) in in_place.items())
    given = tuple(numbers[v] for n, v in enumerate(instruction.inputs) if n not in in_place)
    is_in_place = instruction in facts.rows_in_place
    return instruction.operation.site, _of(instruction.emit), given, written, is_in_place, awaited, made


def _of(x: Any) -> Hashable:
    """A key that is equal for objects that emit the same."""
    if x is None or isinstance(x, bool | int | str | bytes | tf.DType | Dimension | Shape):
        return type(x), x
    if isinstance(x, float):
        return float, x.hex()  # distinguishes 0.0 from -0.0, and makes NaN equal to itself
    if isinstance(x, tuple | list):
        return type(x), tuple(map(_of, x))
    if type(x) is dict:
        return dict, _of(tuple(x.items()))
    if isinstance(x, types.FunctionType):
        return _of_function(x)
    if isinstance(x, types.MethodType):
        return types.MethodType, _of(x.__func__), _of(x.__self__)
    if isinstance(x, functools.partial):
        return functools.partial, _of(x.func), _of(x.args), _of(tuple(x.keywords.items()))
    if isinstance(x, np.ndarray) and x.nbytes <= _LARGEST and x.dtype != object:
        return np.ndarray, x.dtype.str, x.shape, x.tobytes()
    if not _is_pure(type(x)):
        raise _UnknownError
    options = getattr(type(x), "__dataclass_params__", None)
    if options is not None and options.frozen and options.eq:
        return type(x), tuple(_of(getattr(x, f.name)) for f in dataclasses.fields(cast("Any", x)))
    return _Same(x)


@dataclasses.dataclass(frozen=True)
class _Same:
    """A key that compares an object by identity, and keeps it alive."""

    thing: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.thing is self.thing

    def __hash__(self) -> int:
        return id(self.thing)


def _of_function(function: types.FunctionType) -> Hashable:
    if not _is_pure(function):
        raise _UnknownError
    if not function.__module__.startswith("meshtf."):
        return _Same(function)
    try:
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
    except ValueError:  # a cell that has no contents yet
        raise _UnknownError from None
    defaults = (function.__defaults__ or (), tuple((function.__kwdefaults__ or {}).items()))
    return _Same(function.__code__), _of(defaults), tuple(map(_of, cells))


def _is_pure(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").partition(".")[0] in _PURE


def _spec_of(value: Value) -> tf.TensorSpec:
    return tf.TensorSpec(value.slice_shape, value.dtype)
