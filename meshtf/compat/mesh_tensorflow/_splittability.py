"""Which dimensions of an operation Mesh TensorFlow could split, for programs that choose layouts by that."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from meshtf.graph.operation import Operation


def splittability(operation: Operation) -> tuple[frozenset[str], frozenset[str]]:
    """The names of the dimensions that could be split, and of those that could not.

    It is what Mesh TensorFlow said. Here each operation works in every layout, and what it gathers is in the report.
    """
    names = _dims(operation)
    of = _UNSPLITTABLE.get(type(operation).__name__, _said)
    whole = names & frozenset(of(operation))
    return names - whole, whole


def _dims(operation: Any) -> frozenset[str]:
    return frozenset(d.name for t in (*operation.inputs, *operation.outputs) for d in t.shape)


def _said(operation: Any) -> Iterable[str]:
    """Where several operations are one of Mesh TensorFlow's, the last of them knows."""
    return vars(operation).get("whole_names", ())


def _one(operation: Any) -> Iterable[str]:
    return [operation.dim_name]


def _windows(operation: Any) -> Iterable[str]:
    return [operation.windows.image_dim, *_said(operation)]


# By the names of classes, some of which are private to their rooms.
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
