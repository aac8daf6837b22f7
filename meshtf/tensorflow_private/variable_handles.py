"""Variables made directly from a resource handle.

Public alternatives that are not sufficient:

- `_variable_handle_from_shape_and_dtype` and `BaseResourceVariable`: `tf.Variable` takes two to six times as long,
  makes TensorFlow create a kernel for each name, and keeps its initial value.
"""

from __future__ import annotations

from typing import Any, cast

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops


def eager_variable(value: tf.Tensor, name: str) -> tf.Variable:
    """A variable with this value. It shares the value's memory until it is written.

    No GradientTape watches it, and no `tf.function` is retraced for it. Several variables may have the same name.
    """
    shape, dtype = value.shape, value.dtype
    handle = cast("Any", resource_variable_ops)._variable_handle_from_shape_and_dtype(
        shape, dtype, shared_name=None, name=name, graph_mode=False, initial_value=value
    )
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return cast("Any", resource_variable_ops).BaseResourceVariable(
        trainable=False,
        shape=shape,
        dtype=dtype,
        handle=handle,
        handle_name=name,
        unique_id=f"{name}_{id(handle)}",
        initial_value=None,  # the variable would keep it in memory
        in_graph_mode=False,
    )
