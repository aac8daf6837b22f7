"""Calls of traced functions, with TensorFlow's graph optimizer, Grappler, off.

Grappler would optimize a program anew for each core, and it would sum in an order that changes from run to run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, cast

import tensorflow as tf

from meshtf.tensorflow_private.function_calls import call_config, called_with

_MAY_FAIL = frozenset((
    "Assert", "CheckNumerics", "CheckNumericsV2", "Cholesky", "EagerPyFunc", "FloorDiv", "FloorMod", "MatrixInverse",
    "MatrixTriangularSolve", "PyFunc", "PyFuncStateless", "Qr", "TruncateDiv", "TruncateMod",
))  # fmt: skip
"""Types of operations that may fail, depending on values."""
_TAKES_INDICES = (
    "Gather", "ResourceGather", "ResourceScatter", "Scatter", "Segment", "TensorScatter", "UnsortedSegment",
)  # fmt: skip
"""The prefixes of the types of operations that fail if an index is out of range."""


@contextlib.contextmanager
def grappler_off() -> Iterator[None]:
    """Traces and calls functions without Grappler, in this thread.

    A function that was traced in this context must also be called in it, because the setting is part of its identity.
    """
    with called_with(_without_grappler(call_config())):
        yield


class TracedFunction:
    """A traced function that several cores call, inside the function that starts them.

    TensorFlow's own call of a `ConcreteFunction` would bind, convert and compare the arguments again in every call.

    Args:
      function: the traced function, from tensors to a list of tensors.

    Attributes:
      may_fail: whether values can make one of its operations fail. TensorFlow's error then names the operation, but not
        the call of the function.
    """

    def __init__(self, function: tf.types.experimental.ConcreteFunction) -> None:
        self.function = function
        self._captured = list(function.captured_inputs)
        outputs = cast("Sequence[tf.Tensor]", cast("Any", function).outputs)
        self._dtypes, self._shapes = [x.dtype for x in outputs], [x.shape for x in outputs]
        operations = function.graph.get_operations()
        self.may_fail = any(o.type in _MAY_FAIL or o.type.startswith(_TAKES_INDICES) for o in operations)
        is_stateful = any(o.op_def.is_stateful for o in operations)
        self._call: Any = tf.raw_ops.StatefulPartitionedCall if is_stateful else tf.raw_ops.PartitionedCall

    def __call__(self, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        """Emits a call, and returns its results. Arguments have the function's shapes and dtypes; variables are passed
        as handles."""
        made = self._call(
            args=[*arguments, *self._captured],
            Tout=self._dtypes,
            f=self.function,
            config_proto=_without_grappler(call_config()),
        )
        results = made if isinstance(made, list) else [] if isinstance(made, tf.Operation) else [made]
        # The raw operation loses static shapes, but later operations of the trace depend on them.
        for result, shape in zip(results, self._shapes, strict=True):
            result.set_shape(shape)
        return results


@functools.lru_cache(maxsize=8)
def _without_grappler(config_proto: bytes) -> bytes:
    config = tf.compat.v1.ConfigProto.FromString(config_proto)
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config.SerializeToString()
