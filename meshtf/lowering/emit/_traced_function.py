"""Functions traced for one signature of flat tensors, at less cost than by `tf.function`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf

# No public name traces a function but `tf.function`, whose signatures, conversions and caches cost more than what one
# core runs between two collectives.
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import auto_control_deps, func_graph, op_def_registry

from meshtf.lowering.emit._cheap_operations import cheap_operations


def traced_function(
    body: Callable[..., Sequence[tf.Tensor]],
    signature: Sequence[tf.TensorSpec],
    name: str,
    attributes: Mapping[str, Any] | None = None,
) -> tf.types.experimental.ConcreteFunction:
    """A function of tensors that gives a list of tensors, traced now.

    As `tf.function(body, autograph=False)` traces it, but that results are what the body returns, and no copies that
    wait for what has effects: a call of the function ends when all of it is done.

    Args:
      body: what it does.
      signature: of its arguments.
      name: part of its own; and of names in traces of what runs.
      attributes: of TensorFlow's, of the function, by name.
    """
    graph = cast("Any", func_graph.FuncGraph)(name)
    with graph.as_default(), _ControlDependencies() as dependencies, cheap_operations():
        graph.inputs = [_placeholder(graph, spec) for spec in signature]
        given = list(graph.inputs)
        graph.structured_input_signature = (tuple(signature), {})
        for x in given:
            if x.dtype == tf.resource:
                graph._resource_tensor_inputs.add(x)
        graph.outputs = [graph.capture(x) for x in body(*given)]
        graph.inputs = given + graph.internal_captures
    graph.structured_outputs = list(graph.outputs)
    graph.variables = graph._watched_variables
    graph.control_outputs.extend(dependencies.ops_which_must_run)
    graph.collective_manager_ids_used = dependencies.collective_manager_ids_used
    results = tuple(tf.TensorSpec(x.shape, x.dtype) for x in graph.outputs)
    type_ = function_type.from_structured_signature(
        (tuple(signature), {}), results, graph.function_captures.capture_types
    )
    return concrete_function.ConcreteFunction.from_func_graph(
        graph, type_, dict(attributes or {}), shared_func_graph=False
    )


def _placeholder(graph: Any, spec: tf.TensorSpec) -> tf.Tensor:
    attributes = {
        "dtype": tf.compat.v1.AttrValue(type=spec.dtype.as_datatype_enum),
        "shape": tf.compat.v1.AttrValue(shape=spec.shape.as_proto()),
    }
    return graph._create_op_internal("Placeholder", [], name="given", attrs=attributes).outputs[0]


class _ControlDependencies(auto_control_deps.AutomaticControlDependencies):
    """TensorFlow's order of operations that have effects. It asks every operation for attributes; most have none."""

    def __exit__(self, *error: object) -> None:
        graph = cast("Any", self)._graph
        concerned = _concerned(graph.get_operations()[cast("Any", self)._n_operations :])
        cast("Any", self)._n_operations = 0
        graph.get_operations = lambda: concerned
        try:
            super().__exit__(*error)
        finally:
            del graph.get_operations


_LOOKED_AT = frozenset((
    "AllToAll", "CollectivePermute", "CollectiveReduce", "CrossReplicaSum", "Merge", "NoOp", "Switch",
))  # fmt: skip
"""Operations without effects that `AutomaticControlDependencies` orders, too."""


def _concerned(operations: Sequence[Any]) -> list[Any]:
    """Those that may have effects, as all that use resources and all functions may, in order."""
    users = {o for own in operations for x in own.outputs if x.dtype == tf.resource for o in x.consumers()}
    return [o for o in operations if o in users or o.type in _LOOKED_AT or o._is_stateful or not _is_known(o.type)]


@functools.lru_cache(maxsize=1024)
def _is_known(op_type: str) -> bool:
    """Whether it is an operation, and no function."""
    return op_def_registry.get(op_type) is not None
