"""Calls of traced functions inside of another that is being traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context  # no public name tells with which options functions are called here

from meshtf.lowering.emit._cheap_operations import know_shape

_IN_ONE_THREAD = b"SINGLE_THREADED_EXECUTOR"
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
_TAKES_INDICES = (
    "Gather", "ResourceGather", "ResourceScatter", "Scatter", "Segment", "TensorScatter", "UnsortedSegment",
)  # fmt: skip
"""How names of operations begin that fail where an index is out of range."""


class CalledFunction:
    """A function that several operations of the function being traced run, one for each core.

    As if it were called, but that no argument is compared with its specification, or converted, which for the many
    calls of a program would take as long as its tracing; and that calls which change no variable do not wait for one
    another.

    Args:
      function: traced. What functions of the user's close over in it, every call is given.
      in_one_thread: whether its operations are run one after the other, which starts each of them at a fraction of the
        cost, where no other processor waits for work. Not done of functions with loops, branches or calls, nor of those
        that values can make fail.

    Attributes:
      may_fail: whether values can make one of its operations fail.
    """

    def __init__(self, function: tf.types.experimental.ConcreteFunction, *, in_one_thread: bool = False) -> None:
        self.function = function
        self._captured = function.captured_inputs
        operations = cast("Any", function).graph.get_operations()
        self._is_stateful = any(o._is_stateful for o in operations)
        outputs = cast("Sequence[tf.Tensor]", cast("Any", function).outputs)
        self._dtypes = [x.dtype for x in outputs]
        self._shapes = [x.shape.as_list() for x in outputs]
        self._takes_resources = any(x.dtype == tf.resource for x in cast("Any", function).inputs)
        self.may_fail = any(o.type in _MAY_FAIL or o.type.startswith(_TAKES_INDICES) for o in operations)
        in_one_thread = in_one_thread and not any(map(_wants_several, operations))
        self._attributes = {
            "Tin": _types(cast("Any", function).inputs),
            "Tout": _types(outputs),
            "f": tf.compat.v1.AttrValue(func=tf.compat.v1.NameAttrList(name=cast("Any", function).name)),
            "config_proto": _text(cast("Any", context.context()).function_call_options.config_proto_serialized),
            "config": _text(b""),
            "executor_type": _text(_IN_ONE_THREAD if in_one_thread else b""),
            # The shapes of the results are known; TensorFlow would go through the function anew for each core.
            "_disable_call_shape_inference": tf.compat.v1.AttrValue(b=True),
        }

    def __call__(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Its results, for arguments as it takes them, variables by their handles."""
        graph = cast("Any", tf.compat.v1.get_default_graph())
        if not graph._is_function(cast("Any", self.function).name):
            cast("Any", self.function).add_to_graph(graph)
        kind = "StatefulPartitionedCall" if self._is_stateful else "PartitionedCall"
        made = graph._create_op_internal(kind, [*arguments, *self._captured], self._dtypes, attrs=self._attributes)
        for result, shape in zip(made.outputs, self._shapes, strict=True):
            know_shape(result, shape)
        if self._is_stateful and not self._takes_resources:
            _runs_independently(made)
        return list(made.outputs)


def hides_bodies() -> tf.Operation:
    """Makes an operation; calls that wait for it are not looked into.

    Before a function runs for the first time, TensorFlow makes a graph of the body of each function that it calls, for
    every call anew, and twice, to find variables of TensorFlow 1, which takes as long as all else that prepares it.
    What waits for such a variable counts as having one. That matters only to clusters that XLA compiles, of which
    there are none.
    """
    return tf.raw_ops.VariableV2(shape=[], dtype=tf.float32).op


def _types(tensors: Sequence[tf.Tensor]) -> tf.compat.v1.AttrValue:
    return tf.compat.v1.AttrValue(list={"type": [x.dtype.as_datatype_enum for x in tensors]})


def _text(value: bytes) -> tf.compat.v1.AttrValue:
    return tf.compat.v1.AttrValue(s=value)


def _wants_several(operation: tf.Operation) -> bool:
    if operation.type in _MAY_FAIL:
        return True
    return operation.type in _STARTS_OTHERS and "_XlaMustCompile" not in operation.node_def.attr


def _runs_independently(call: tf.Operation) -> None:
    """TensorFlow would order all such calls of a program, and so let one core run after the other."""
    if (dependencies := tf.compat.v1.get_default_graph().experimental_acd_manager) is not None:
        dependencies.run_independently(call)
