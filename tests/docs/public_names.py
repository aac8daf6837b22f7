"""Everything that users call by its name, and the names that the examples in docstrings may use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf


def callables() -> dict[str, Callable[..., Any]]:
    """Every function and class of the language, its layers and its optimizers, by name."""
    packages = {"mtf": mtf, "mtf.layers": mtf.layers, "mtf.optimize": mtf.optimize}
    things = {f"{prefix}.{n}": getattr(package, n) for prefix, package in packages.items() for n in package.__all__}
    return {name: thing for name, thing in things.items() if callable(thing)}


def signature(thing: Callable[..., Any]) -> inspect.Signature:
    """What users write; of a protocol, what it is called with."""
    if getattr(thing, "_is_protocol", False):
        thing = vars(thing)["__call__"]
    return inspect.signature(thing)


def example_names(graph: mtf.Graph) -> dict[str, Any]:
    """The names that docs/operations.md promises to a reader of an example, new for each."""
    mesh = mtf.Mesh(graph)
    x = mtf.placeholder(mesh, "batch:4 hidden:8", name="x")
    return {"mtf": mtf, "np": np, "tf": tf, "mesh": mesh, "x": x, "value": value}


def value(y: mtf.Tensor) -> np.ndarray:
    """What y is when the program runs."""
    return mtf.testing.interpret_graph(y.graph, [y], {}, "all:1").results[0]
