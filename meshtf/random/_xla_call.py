"""Functions compiled by XLA whose bodies TensorFlow's graph optimizers cannot see.

Grappler rewrites the body of a `tf.function(jit_compile=True)` that a traced program calls, before XLA compiles it.
Normal numbers drawn there differed in the last bit from those of an eager call. Here the body is lowered to StableHLO
once, and the function is a single op that carries it. The same instructions therefore run wherever it is called. It is
also cheaper: TensorFlow analyses a body at every place that calls it on every core, in about a millisecond for 200 ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.tensorflow_private.xla_modules import stablehlo_of
from meshtf.tensorflow_private.xla_operations import call_module


def as_xla_call(
    function: Callable[..., tf.Tensor], signature: Sequence[tf.TensorSpec]
) -> tf.types.experimental.ConcreteFunction:
    """Compiles `function`, which has one result, for arguments of static shapes.

    Traces it outside of every graph and device.

    The result is a concrete function: a `tf.function` would be traced again for each device and graph that calls it.
    """
    with tf.init_scope(), tf.device(None):
        concrete = tf.function(function, jit_compile=True, autograph=False).get_concrete_function(*signature)
        result = tf.TensorSpec(concrete.structured_outputs.shape, concrete.structured_outputs.dtype)
        module = stablehlo_of(concrete, signature)

        def call(*arguments: tf.Tensor) -> tf.Tensor:
            return call_module(arguments, module, [result], "CPU")[0]

        return tf.function(call, jit_compile=True, autograph=False).get_concrete_function(*signature)
