"""Functions compiled by XLA whose bodies TensorFlow's graph optimizers cannot see.

In a `tf.function(jit_compile=True)` called from a traced program, Grappler rewrites the body before XLA compiles it:
normals drawn there differed in the last bit from those of an eager call. Here the body is lowered to StableHLO once,
and the function is a single op that carries it. So the same instructions run wherever it is called. It is cheaper too:
TensorFlow analyses the body at every place that calls it on every core, at a millisecond for 200 ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.tensorflow_private.xla_modules import stablehlo_of
from meshtf.tensorflow_private.xla_operations import call_module


def as_xla_call(
    function: Callable[..., tf.Tensor], signature: Sequence[tf.TensorSpec]
) -> tf.types.experimental.ConcreteFunction:
    """The compiled `function` of one result, for arguments of static shapes; traced outside of every graph and device.

    Concrete: a `tf.function` would be traced again for each device and graph that calls it.
    """
    with tf.init_scope(), tf.device(None):
        concrete = tf.function(function, jit_compile=True, autograph=False).get_concrete_function(*signature)
        result = tf.TensorSpec(concrete.structured_outputs.shape, concrete.structured_outputs.dtype)
        module = stablehlo_of(concrete, signature)

        def call(*arguments: tf.Tensor) -> tf.Tensor:
            return call_module(arguments, module, result, "CPU")

        return tf.function(call, jit_compile=True, autograph=False).get_concrete_function(*signature)
