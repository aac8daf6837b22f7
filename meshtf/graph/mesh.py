"""The mesh of a graph's tensors, whose size is not known yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from meshtf.call_sites import says_where
from meshtf.errors import GraphError

if TYPE_CHECKING:
    from meshtf.graph.graph import Graph


class Mesh:
    """A tag for the mesh on which a tensor lives. Lowering sets its shape.

    Examples:
      >>> mtf.zeros(mtf.Mesh(mtf.Graph()), "batch:4")
      constant [batch:4] float32
    """

    @says_where
    def __init__(self, graph: Graph, name: str = "mesh") -> None:
        if not hasattr(graph, "meshes"):
            raise GraphError(f"the graph of a mesh must be an mtf.Graph, not {type(graph).__name__}")
        self.graph = graph
        self.name = name
        graph.meshes.append(self)


def check_mesh(x: object) -> Mesh:
    if not isinstance(x, Mesh):
        raise GraphError(
            f"an mtf.Mesh is needed, not {type(x).__name__}; it is `x.mesh` of any tensor, and what the body of an "
            f"mtf.function is given as `mesh`"
        )
    return x
