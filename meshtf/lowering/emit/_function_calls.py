"""Calls of traced functions inside of another that is being traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context  # no public name tells with which options functions are called here

_IN_ONE_THREAD = "SINGLE_THREADED_EXECUTOR"
_STARTS_OTHERS = frozenset((
    "Case", "If", "MapDefun", "PartitionedCall", "RemoteCall", "StatefulPartitionedCall", "StatelessCase",
    "StatelessIf", "StatelessWhile", "SymbolicGradient", "While",
))  # fmt: skip
"""Operations that run functions, but for those that XLA compiles. The thread would wait for others that run these."""
_MAY_FAIL = frozenset((
    "Assert", "CheckNumerics", "CheckNumericsV2", "Cholesky", "EagerPyFunc", "FloorDiv", "FloorMod", "MatrixInverse",
    "MatrixTriangularSolve", "PyFunc", "PyFuncStateless", "Qr", "TruncateDiv", "TruncateMod",
))  # fmt: skip
"""Operations whose errors depend on values. Of one that fails in one thread, TensorFlow does not say which it was."""


def called(
    function: tf.types.experimental.ConcreteFunction, arguments: Sequence[tf.Tensor], *, in_one_thread: bool = False
) -> list[tf.Tensor]:
    """What a function without captured tensors gives, as operation of the function that is being traced.

    As if it were called, but that no argument is compared with its specification, which for the many calls of a program
    takes as long as its tracing; and that calls which change no variable do not wait for one another.

    Args:
      function: traced.
      arguments: as it takes them, variables by their handles.
      in_one_thread: whether its operations are run one after the other, which starts each of them at a fraction of the
        cost, where no other processor waits for work. Not done of functions with loops, branches or calls, nor of those
        that values can make fail.
    """
    graph, outputs = cast("Any", function).graph, cast("Sequence[tf.Tensor]", cast("Any", function).outputs)
    operations = graph.get_operations()
    is_stateful = any(o.op_def.is_stateful and o.type != "Placeholder" for o in operations)
    made = (tf.raw_ops.StatefulPartitionedCall if is_stateful else tf.raw_ops.PartitionedCall)(
        args=list(arguments),
        Tout=[x.dtype for x in outputs],
        f=function,
        config_proto=cast("Any", context.context()).function_call_options.config_proto_serialized,
        executor_type=_IN_ONE_THREAD if in_one_thread and not any(map(_wants_several, operations)) else "",
    )
    # Of no tensors, the operation itself is returned.
    results, call = (made, made[0].op) if outputs else ([], made)
    for result, own in zip(results, outputs, strict=True):
        result.set_shape(own.shape)
    if is_stateful and not any(x.dtype == tf.resource for x in arguments):
        _runs_independently(call)
    return results


def _wants_several(operation: tf.Operation) -> bool:
    if operation.type in _MAY_FAIL:
        return True
    return operation.type in _STARTS_OTHERS and "_XlaMustCompile" not in operation.node_def.attr


def _runs_independently(call: tf.Operation) -> None:
    """TensorFlow would order all such calls of a program, and so let one core run after the other."""
    if (dependencies := tf.compat.v1.get_default_graph().experimental_acd_manager) is not None:
        dependencies.run_independently(call)
