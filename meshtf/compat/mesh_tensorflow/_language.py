"""The language's functions as Mesh TensorFlow's programs call them: outside of any graph, beside its scalars."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ParamSpec, TypeVar

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._graph import imported_scalar, is_of_tensorflow
from meshtf.graph import Mesh, Tensor

P = ParamSpec("P")
T = TypeVar("T")


def for_graphs(fn: Callable[P, T]) -> Callable[P, T]:
    """The function, whose graph is that of its operands; scalars of TensorFlow among these are imported."""

    @functools.wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        beside = next(_tensors([*args, *kwargs.values()]), None)
        if beside is not None:
            args = tuple(_operand(x, beside) for x in args)  # type: ignore[assignment]
        mesh = _mesh_of(beside, args)
        if mesh is None:
            return fn(*args, **kwargs)
        with mesh.graph:
            return fn(*args, **kwargs)

    return call


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
