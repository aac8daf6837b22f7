"""Graphs of programs that are written as for Mesh TensorFlow: scopes are TensorFlow's, and so are master variables."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from meshtf import graph as language
from meshtf.compat.mesh_tensorflow._step_count import StepCount
from meshtf.errors import GraphError
from meshtf.ops.inputs.placeholder import import_tf_tensor


class Graph(language.Graph):
    """As `meshtf.Graph`. Nothing is opened: operations know their graph from their operands.

    Attributes:
      masters: by name, the TensorFlow variables that are initialized, saved and restored; see `mtf.get_variable`.
      step_count: what optimizers are told of the global step.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> old.ones(old.Mesh(old.Graph(), "mesh"), "batch:4")
      constant [batch:4] float32
    """

    def __init__(self) -> None:
        super().__init__("program")
        self.masters: dict[str, tf.Variable] = {}
        self.step_count = StepCount()

    def check_scope_of_tensorflow(self) -> None:
        """A tf.variable_scope may be open: it names variables here."""

    def operand(self, value: Any, beside: language.Tensor) -> Any:
        """Scalars of TensorFlow are imported, in the dtype of the tensor beside them."""
        return imported_scalar(value, beside.mesh, beside.dtype) if is_of_tensorflow(value) else value


class Mesh(language.Mesh):
    """A tag that says on which mesh a tensor lives.

    Args:
      graph: an `mtf.Graph` of this module.
      name: of the mesh.
      variable_placer: ignored: masters are kept on the host's first CPU.

    Raises:
      GraphError: the graph is another one.

    Examples:
      >>> import meshtf.compat.mesh_tensorflow as old
      >>> old.Mesh(old.Graph(), "my_mesh").name
      'my_mesh'
    """

    def __init__(self, graph: Graph, name: str = "mesh", variable_placer: object = None) -> None:
        if not isinstance(graph, Graph):
            raise GraphError(
                f"a mesh of meshtf.compat.mesh_tensorflow needs its own mtf.Graph(), and not {type(graph).__name__}"
            )
        super().__init__(graph, name)


def graph_of(mesh: language.Mesh) -> Graph:
    """GraphError where the mesh is of a graph that is no `Graph` of this module."""
    if not isinstance(mesh.graph, Graph):
        raise GraphError(
            "a mesh of meshtf.compat.mesh_tensorflow is needed here, made by its mtf.Mesh(mtf.Graph(), name); "
            "in the body of an mtf.function use the names of meshtf itself"
        )
    return mesh.graph


def is_of_tensorflow(value: object) -> bool:
    """Whether it is a tensor or a variable of TensorFlow's."""
    return isinstance(value, tf.Tensor | tf.Variable) or (
        tf.is_tensor(value) and not isinstance(value, language.Tensor)
    )


def imported_scalar(value: Any, mesh: language.Mesh, dtype: tf.DType) -> language.Tensor:
    """GraphError for what is no scalar: only `mtf.import_tf_tensor` says what its dimensions are."""
    tensor = tf.convert_to_tensor(value)
    if tensor.shape.rank != 0:
        raise GraphError(
            f"a tf.Tensor of shape {tensor.shape} stands beside a tensor of the language; name its dimensions with "
            f"mtf.import_tf_tensor(mesh, x, shape)"
        )
    return import_tf_tensor(mesh, tf.cast(tensor, dtype), [])
