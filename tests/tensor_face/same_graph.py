"""Whether two ways to write a program give the same graph, operation by operation."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

import meshtf as mtf
from meshtf.dimension import Dimension, Shape


def assert_same_graph(old: Callable[..., Any], new: Callable[..., Any], inputs: dict[str, mtf.TensorSpec]) -> None:
    """Checks that two functions make the same operations and return the same tensors.

    Each takes one object, which has the inputs by their names.
    """
    expected, found = _described(old, inputs), _described(new, inputs)
    assert found == expected


def _described(fn: Callable[..., Any], inputs: dict[str, mtf.TensorSpec]) -> list[Any]:
    graph, results = mtf.testing.build(lambda **tensors: fn(types.SimpleNamespace(**tensors)), inputs)
    operations = [
        (type(op).__name__, op.name, [str(x) for x in op.inputs], [str(y) for y in op.outputs], _settings(op))
        for op in graph.every_operation()
    ]
    returned = results if isinstance(results, list | tuple) else [results]
    return [*operations, [str(x) for x in returned]]


def _settings(operation: mtf.Operation) -> dict[str, str]:
    """The operation's attributes that are plain values; kernels are functions, which nothing compares."""
    return {name: repr(value) for name, value in vars(operation).items() if _is_plain(value)}


def _is_plain(value: object) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(x) for x in value)
    return value is None or isinstance(value, bool | int | float | str | Dimension | Shape | np.ndarray | np.generic)
