"""Lets callers omit the mesh, the first parameter of many functions, where the graph has only one."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from meshtf.call_sites import language_function
from meshtf.errors import GraphError
from meshtf.graph.graph import Graph, current_graph
from meshtf.graph.mesh import Mesh
from meshtf.graph.tensor import Tensor

P = ParamSpec("P")
T = TypeVar("T", covariant=True)

_NO_GRAPH = """\
the mesh was left out, and no graph is being built here that would have one; call this inside the body of an
mtf.function or inside `with graph:`, or give the mesh first"""


class TakesMesh(Protocol[P, T]):
    """A function whose first parameter, the mesh, is optional."""

    __name__: str
    __qualname__: str

    @overload
    def __call__(self, mesh: Mesh, /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T: ...


def takes_mesh(fn: Callable[Concatenate[Mesh, P], T]) -> TakesMesh[P, T]:
    """Lets callers of a function omit its first parameter, the mesh. The default is the current graph's only mesh.

    The result is a `language_function`, so do not decorate the function with that as well.
    """
    wrapper: Any = _filled(fn, 0)
    return wrapper


def method_takes_mesh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`takes_mesh` for a method whose first parameter after `self` is the mesh.

    The method declares overloads with and without the mesh, because type checkers do not treat a protocol that a
    decorator returns as a method or constructor.
    """
    return _filled(fn, 1)


def _filled(fn: Callable[..., Any], place: int) -> Callable[..., Any]:
    """Wraps a function to insert the mesh as parameter number `place` if the caller omitted it."""
    located = language_function(fn)

    @functools.wraps(fn)
    def filled(*args: Any, **kwargs: Any) -> Any:
        given = args[place:]
        if "mesh" in kwargs or (given and isinstance(given[0], Mesh)):
            return located(*args, **kwargs)
        if given:
            _check_no_stand_in(given[0], fn, [*inspect.signature(fn).parameters][place + 1])
        return located(*args[:place], _known_mesh(), *given, **kwargs)

    # Otherwise a call without the mesh would be checked against the signature of `fn`, which requires it.
    del filled.__wrapped__  # type: ignore[attr-defined]
    wrapper: Any = language_function(filled)
    wrapper.__wrapped__ = fn
    return wrapper


def _known_mesh() -> Mesh:
    """The only mesh of the graph that is being built."""
    try:
        graph = current_graph()
    except GraphError:
        raise GraphError(_NO_GRAPH) from None
    if len(graph.meshes) == 1:
        return graph.meshes[0]
    if not graph.meshes:
        raise GraphError(f'the mesh was left out, and graph "{graph.name}" has none; make one with mtf.Mesh(graph)')
    names = ", ".join(f'"{mesh.name}"' for mesh in graph.meshes)
    raise GraphError(f'the mesh was left out, and graph "{graph.name}" has several: {names}; give one of them first')


def _check_no_stand_in(first: object, fn: Callable[..., object], second: str) -> None:
    """Rejects a first argument that is neither a mesh nor suitable for the second parameter."""
    if isinstance(first, Tensor):
        what = f"the tensor {first}, whose mesh is x.mesh"
    elif isinstance(first, Graph):
        what = f'graph "{first.name}"'
    elif hasattr(first, "layout_rules"):
        what = f"an mtf.{type(first).__name__}, on which programs run and not the tag of a graph's tensors"
    elif first is None:
        what = "None"
    else:
        return
    shown = fn.__qualname__.removesuffix(".__init__").removesuffix(".__call__")
    raise GraphError(
        f"the first argument, the mesh or `{second}`, is {what}; write {shown}(mesh, {second}, ...), "
        f"or leave the mesh out inside the body of an mtf.function"
    )
