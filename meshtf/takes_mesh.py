"""Functions and methods whose first parameter is the mesh, which a caller may leave out where the mesh is known."""

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
    """A function that takes the mesh first, or not at all."""

    __name__: str
    __qualname__: str

    @overload
    def __call__(self, mesh: Mesh, /, *args: P.args, **kwargs: P.kwargs) -> T: ...
    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T: ...


def takes_mesh(fn: Callable[Concatenate[Mesh, P], T]) -> TakesMesh[P, T]:
    """Lets callers of a function leave out its first parameter, the mesh. It is then the current graph's only mesh.

    The function need not be a `language_function`: this makes it one.
    """
    wrapper: Any = _filled(fn, 0)
    return wrapper


def method_takes_mesh(fn: Callable[..., Any]) -> Callable[..., Any]:
    """`takes_mesh` for a method whose first parameter after `self` is the mesh.

    The method has overloads with and without the mesh, because checkers of types know no method or constructor that a
    decorator makes of a protocol.
    """
    return _filled(fn, 1)


def _filled(fn: Callable[..., Any], place: int) -> Callable[..., Any]:
    """The function with the mesh, at this place of its parameters, filled in where a caller left it out."""
    located = language_function(fn)

    @functools.wraps(fn)
    def filled(*args: Any, **kwargs: Any) -> Any:
        given = args[place:]
        if "mesh" in kwargs or (given and isinstance(given[0], Mesh)):
            return located(*args, **kwargs)
        if given:
            _check_no_stand_in(given[0], fn, [*inspect.signature(fn).parameters][place + 1])
        return located(*args[:place], _known_mesh(), *given, **kwargs)

    # Without it, an error would be read against the signature of `fn`, which has a mesh that this call may lack.
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
    """Refuses a first argument that is no mesh, and that no second parameter takes."""
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
