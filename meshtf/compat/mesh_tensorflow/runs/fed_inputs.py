"""Finds the inputs whose values a session must compute for tensors, and the inputs that any run can compute."""

from __future__ import annotations

from collections.abc import Iterable

import tensorflow as tf

from meshtf.compat.mesh_tensorflow._graph import Graph
from meshtf.graph.tensor import Tensor
from meshtf.lowering.make_plan import needed
from meshtf.ops.inputs.placeholder import InputOperation
from meshtf.ops.variables.variable import Assign

_READS_A_VARIABLE = frozenset({"VarHandleOp", "ReadVariableOp", "VariableV2", "Variable"})


def fed_inputs(tensors: Iterable[Tensor]) -> list[InputOperation]:
    """The inputs of these tensors whose values come from a TensorFlow graph."""
    inputs = [o for o in needed([t.operation for t in tensors]) if isinstance(o, InputOperation)]
    return [o for o in inputs if isinstance(o.value, tf.Tensor) and not hasattr(o.value, "numpy")]


def inputs_of_update(graph: Graph, tensors: Iterable[Tensor]) -> list[InputOperation]:
    """The inputs of an update, and those of the graph's other updates that depend only on variables.

    A learning rate is an example of the latter. With them, most updates of a group have all inputs of the group.
    """
    own = fed_inputs(tensors)
    every = fed_inputs([o.outputs[0] for o in graph.operations if isinstance(o, Assign)])
    return [*own, *(o for o in every if o not in own and _is_of_variables(o.value, graph.step_count.node))]


def _is_of_variables(tensor: tf.Tensor, step: tf.Tensor | None) -> bool:
    """Whether a session can compute the tensor in any run: without placeholders, iterators and random numbers.

    A session can always compute `step`.
    """
    seen, waiting = {tensor.op}, [tensor.op]
    while waiting:
        operation = waiting.pop()
        if step is not None and operation is step.op:
            continue
        if operation.type.startswith("Placeholder"):
            return False
        if operation.op_def.is_stateful and operation.type not in _READS_A_VARIABLE:
            return False
        for x in operation.inputs:
            if x.op not in seen:
                seen.add(x.op)
                waiting.append(x.op)
    return True
