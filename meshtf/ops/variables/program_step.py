"""The count of a program's runs, on which its random bits depend."""

from __future__ import annotations

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.blocks import with_nested
from meshtf.graph.mesh import Mesh
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.graph.variable_dtype import VariableDType
from meshtf.ops.inputs.constants import ones, zeros
from meshtf.ops.variables.assign import assign_add
from meshtf.ops.variables.variable import Assign, Variable, VariableSpec


def program_step(mesh: Mesh) -> Tensor:
    """The number of times that the program has run (int64 scalar): a saved variable, counted if it uses random bits."""
    graph = mesh.graph
    name = f"{graph.name}/step"
    existing = graph.variables.get(name)
    if existing is not None:
        return existing.outputs[0]
    return Variable(mesh, VariableSpec(name, Shape([]), VariableDType(tf.int64), zeros, False, Shape([]))).value


def count_step(mesh: Mesh) -> list[Operation]:
    """Adds the counting of runs to a program whose random bits depend on the count, unless it already counts.

    Returns:
      The operations that count; none if no random bits depend on the count.
    """
    graph = mesh.graph
    step = graph.variables.get(f"{graph.name}/step")
    if step is None:
        return []
    counts = [o for o in with_nested(graph.operations) if isinstance(o, Assign) and o.variable is step]
    if counts:
        return list(counts)
    with graph.root_scope():
        return [assign_add(step.outputs[0], ones(mesh, [], tf.int64)).operation]
