"""Variables that last as long as a step: TensorFlow's training kernels write to nothing else."""

from __future__ import annotations

import tensorflow as tf

# No public name makes one without a name, which goes when nothing refers to it any more, inside of a function.
from tensorflow.python.eager import context


def variable_of_its_own(value: tf.Tensor) -> tf.Tensor:
    """The handle of a new variable that has this value. The value is not copied, unless something else has its memory
    when the variable is written to."""
    handle = tf.raw_ops.VarHandleOp(dtype=value.dtype, shape=value.shape, shared_name=context.anonymous_name())
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle
