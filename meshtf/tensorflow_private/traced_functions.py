"""Functions traced for one signature of flat tensors, and what TensorFlow is told of a traced function.

Public ways that do not do:

- `_noinline`: `tf.function` documents `experimental_attributes`, and not which there are. Nothing else keeps the body
  of a function out of its callers.
- `FuncGraph`, `AutomaticControlDependencies`, `from_structured_signature`, `ConcreteFunction.from_func_graph`:
  `tf.function` traces with these. Its signatures, conversions and caches take longer than what one core runs between
  two collectives, and it puts copies on results, which wait for all that has effects. `tf.compat.v1.wrap_function`
  makes no copies, but lets operations with effects run in any order, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.core.function.polymorphism import function_type
from tensorflow.python.eager.polymorphic_function import concrete_function
from tensorflow.python.framework import auto_control_deps, func_graph

NOT_INLINED: Mapping[str, bool] = {"_noinline": True}
"""Attributes of a function that stays one: its callers run it as a whole, and are optimized without it."""


def traced(
    body: Callable[..., Sequence[tf.Tensor]],
    signature: Sequence[tf.TensorSpec],
    name: str,
    attributes: Mapping[str, Any] | None = None,
) -> tf.types.experimental.ConcreteFunction:
    """Traces a function from tensors to a list of tensors.

    Operations with effects run in the order in which the body makes them. A result is what the body returns: it waits
    for no effect, but a call of the function ends when all is done.

    Args:
      body: the function's body.
      signature: the shapes and dtypes of its arguments.
      name: a part of its own name, and of names in traces of runs.
      attributes: the function's attributes, such as `NOT_INLINED`.
    """
    graph: Any = func_graph.FuncGraph(name)
    dependencies: Any = auto_control_deps.AutomaticControlDependencies()
    with graph.as_default(), dependencies:
        given = [tf.compat.v1.placeholder(spec.dtype, spec.shape, "given") for spec in signature]
        graph.inputs = list(given)
        graph.structured_input_signature = (tuple(signature), {})
        graph.outputs = [graph.capture(x) for x in body(*given)]
        graph.inputs = given + graph.internal_captures
    graph.structured_outputs = list(graph.outputs)
    graph.control_outputs.extend(dependencies.ops_which_must_run)
    graph.collective_manager_ids_used = dependencies.collective_manager_ids_used
    results = tuple(tf.TensorSpec(x.shape, x.dtype) for x in graph.outputs)
    captured = graph.function_captures.capture_types
    type_ = cast("Any", function_type).from_structured_signature((tuple(signature), {}), results, captured)
    return cast("Any", concrete_function).ConcreteFunction.from_func_graph(
        graph, type_, dict(attributes or {}), shared_func_graph=False
    )
