"""Calls of traced functions inside of another that is being traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.python.eager import context  # no public name tells with which options functions are called here


def called(function: tf.types.experimental.ConcreteFunction, arguments: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What a function without captured tensors gives, as operation of the function that is being traced.

    As if it were called, but that no argument is compared with its specification, which for the many calls of a program
    takes as long as its tracing.
    """
    outputs = cast("Sequence[tf.Tensor]", cast("Any", function).outputs)
    made = tf.raw_ops.StatefulPartitionedCall(
        args=list(arguments),
        Tout=[x.dtype for x in outputs],
        f=function,
        config_proto=cast("Any", context.context()).function_call_options.config_proto_serialized,
    )
    results: list[tf.Tensor] = made if outputs else []  # of no tensors, the operation itself is returned
    for result, own in zip(results, outputs, strict=True):
        result.set_shape(own.shape)
    return results
