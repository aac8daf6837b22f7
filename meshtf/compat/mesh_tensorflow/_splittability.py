"""The dimensions of an operation that Mesh TensorFlow could split. Some programs use them to choose layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meshtf.graph.operation import Operation


def splittability(operation: Operation) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the dimensions that Mesh TensorFlow could split, and of those that it could not.

    The answer is the original's. Here every operation works in every layout, and the report lists what it gathers.
    """
    names = _dims(operation)
    of = _UNSPLITTABLE.get(type(operation).__name__, _said)
    whole = names & frozenset(of(operation))
    return names - whole, whole


def _dims(operation: Any) -> frozenset[str]:
    return frozenset(d.name for t in (*operation.inputs, *operation.outputs) for d in t.shape)


def _said(operation: Any) -> Iterable[str]:
    """The names that are stored in the last of several operations, if these replace one operation of Mesh
    TensorFlow.
    """
    return vars(operation).get("whole_names", ())


def _one(operation: Any) -> Iterable[str]:
    return [operation.dim_name]


def _windows(operation: Any) -> Iterable[str]:
    return [operation.windows.image_dim, *_said(operation)]


# The keys are names because some of these classes are private to their packages.
_UNSPLITTABLE: dict[str, Callable[[Any], Iterable[str]]] = {
    "ConcatOperation": _one,
    "SliceOperation": _one,
    "SplitOperation": _one,
    "StackOperation": _one,
    "UnstackOperation": _one,
    "ConvolutionOperation": lambda operation: [*operation.geometry.sliding, *operation.geometry.taps],
    "SlicewiseOperation": lambda operation: _dims(operation) - {*operation.splittable_names},
    "MaxPoolOperation": _windows,
    "WindowSumOperation": _windows,
}
