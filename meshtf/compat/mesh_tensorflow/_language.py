"""Adapts the language's functions to Mesh TensorFlow programs, which call them outside a graph and on tf scalars."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._dimension import the_dimension
from meshtf.compat.mesh_tensorflow._graph import imported_scalar, is_of_tensorflow
from meshtf.dimension import Dimension
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def for_graphs(fn: Callable[P, T]) -> Callable[P, T]:
    """Wraps a function of the language for calls outside `with graph`.

    The wrapper opens the graph of the operands, and imports TensorFlow scalars. For an argument that is one dimension,
    it also accepts a list of one dimension.
    """

    names, operands = _parameters(fn, "DimensionLike"), set(_parameters(fn, "Operand").values())

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        args = tuple(_one(x, names.get(i)) for i, x in enumerate(args))  # type: ignore[assignment]
        kwargs = {n: _one(x, n if n in names.values() else None) for n, x in kwargs.items()}  # type: ignore[assignment]
        tensors = list(_tensors([*args, *kwargs.values()]))
        # The condition of mtf.where does not say which dtype a scalar has.
        beside = next((x for x in tensors if x.dtype != tf.bool), tensors[0] if tensors else None)
        if beside is not None:
            args = tuple(_operand(x, beside) for x in args)  # type: ignore[assignment]
            kwargs = {n: _operand(x, beside) if n in operands else x for n, x in kwargs.items()}  # type: ignore[assignment]
        mesh = _mesh_of(beside, args)
        if mesh is None:
            return fn(*args, **kwargs)
        with mesh.graph:
            return fn(*args, **kwargs)

    return call


def _parameters(fn: Callable[..., Any], kind: str) -> dict[int, str]:
    """The names of the parameters whose annotation begins with `kind`, by position."""
    parameters = inspect.signature(fn).parameters.values()
    return {i: p.name for i, p in enumerate(parameters) if str(p.annotation).startswith(kind)}


def _one(x: Any, name: str | None) -> Any:
    """Returns the only dimension of a list. Mesh TensorFlow accepted such a list as a dimension."""
    is_list = name is not None and isinstance(x, list | tuple) and any(isinstance(d, Dimension) for d in x)
    return the_dimension(x, f"`{name}`") if is_list and len(x) == 1 else x


def _operand(x: Any, beside: Tensor) -> Any:
    is_scalar = is_of_tensorflow(x) and tf.convert_to_tensor(x).shape.rank == 0
    return imported_scalar(x, beside.mesh, beside.dtype) if is_scalar else x


def _mesh_of(beside: Tensor | None, args: Iterable[Any]) -> Mesh | None:
    if beside is not None:
        return beside.mesh
    return next((x for x in args if isinstance(x, Mesh)), None)


def _tensors(values: Iterable[Any]) -> Iterator[Tensor]:
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list | tuple):
            yield from _tensors(x)
