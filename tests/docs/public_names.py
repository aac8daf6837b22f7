"""Everything that users call by its name, and the names that the examples in docstrings may use."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf

import meshtf as mtf
from meshtf import checkpoint, costs, debug, models, testing, train
from meshtf.layers import moe, transformer


def language() -> dict[str, Callable[..., Any]]:
    """Every function and class of the language, its layers, its optimizers and its quantization, by name."""
    packages = {"mtf": mtf, "mtf.layers": mtf.layers, "mtf.optimize": mtf.optimize}
    return _callables(packages | {"mtf.quantization": mtf.quantization})


def everything() -> dict[str, Callable[..., Any]]:
    """The same of all packages that users import."""
    others = (transformer, moe, models, checkpoint, costs, debug, testing, train)
    return language() | _callables({package.__name__: package for package in others})


def signature(thing: Callable[..., Any]) -> inspect.Signature:
    """What users write; of a protocol, what it is called with, if it is called."""
    if getattr(thing, "_is_protocol", False):
        return inspect.signature(thing.__call__) if "__call__" in vars(thing) else inspect.Signature()
    whole = inspect.signature(thing)
    named = [
        p for p in whole.parameters.values() if not str(p.annotation).startswith("Unpack[")
    ]  # a typed dict has them
    return whole.replace(parameters=named)


def docstring(thing: Callable[..., Any]) -> str:
    """What users read; of a protocol with what is said of its call."""
    own = inspect.getdoc(thing) or ""
    is_called = getattr(thing, "_is_protocol", False) and "__call__" in vars(thing)
    return f"{own}\n\n{inspect.getdoc(vars(thing)['__call__'])}" if is_called else own


def _callables(packages: dict[str, ModuleType]) -> dict[str, Callable[..., Any]]:
    things = {f"{prefix}.{n}": getattr(package, n) for prefix, package in packages.items() for n in package.__all__}
    return {name: thing for name, thing in things.items() if callable(thing)}


def example_names(graph: mtf.Graph) -> dict[str, Any]:
    """The names that docs/operations.md promises to a reader of an example, new for each."""
    mesh = mtf.Mesh(graph)
    x = mtf.placeholder(mesh, "batch:4 hidden:8", name="x")
    return {"mtf": mtf, "np": np, "tf": tf, "mesh": mesh, "x": x, "value": value}


def value(y: mtf.Tensor) -> np.ndarray:
    """What y is when the program runs."""
    return mtf.testing.interpret_graph(y.graph, [y], {}, "all:1").results[0]
