"""Variables that last as long as a step: TensorFlow's training kernels write to nothing else."""

from __future__ import annotations

import tensorflow as tf

from meshtf.tensorflow_private.variable_handles import unnamed_handle


def variable_of_its_own(value: tf.Tensor) -> tf.Tensor:
    """The handle of a new variable that has this value. The value is not copied, unless something else has its memory
    when the variable is written to."""
    handle = unnamed_handle(value.dtype, value.shape)
    tf.raw_ops.AssignVariableOp(resource=handle, value=value)
    return handle
