"""Functions compiled by XLA whose bodies TensorFlow's graph optimizers cannot see.

Grappler rewrites the body of a `tf.function(jit_compile=True)` that a traced program calls, before XLA compiles it.
Normal numbers drawn there differed in the last bit from those of an eager call. Here the body is lowered to StableHLO
once, and the function is a single op that carries it. The same instructions therefore run wherever it is called. It is
also cheaper: TensorFlow analyses a body at every place that calls it on every core, in about a millisecond for 200 ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.eager import context

MODULE_VERSION = 9  # of the XlaCallModule op


def as_xla_call(
    function: Callable[..., tf.Tensor], signature: Sequence[tf.TensorSpec]
) -> tf.types.experimental.ConcreteFunction:
    """Compiles `function`, which has one result, for arguments of static shapes.

    Traces it outside of every graph and device.

    The result is a concrete function: a `tf.function` would be traced again for each device and graph that calls it.
    """
    with tf.init_scope(), tf.device(None):
        concrete = tf.function(function, jit_compile=True, autograph=False).get_concrete_function(*signature)
        result = concrete.structured_outputs
        # The public `experimental_get_compiler_ir` calls this too, but also draws from the user's seeded random
        # numbers.
        module = cast("Any", context.context()).get_compiler_ir(
            device_name="",
            platform_name="CPU",
            function_name=concrete.name,
            flat_args=list(signature),
            captured_inputs=concrete.captured_inputs,
            stage="stablehlo_serialized",
        )

        def call(*arguments: tf.Tensor) -> tf.Tensor:
            results = gen_xla_ops.xla_call_module(
                arguments,
                version=MODULE_VERSION,
                module=module,
                Sout=[result.shape],
                Tout=[result.dtype],
                platforms=["CPU"],
                disabled_checks=["platform"],  # nothing in the module is of one platform
            )
            return cast("Sequence[tf.Tensor]", results)[0]

        return tf.function(call, jit_compile=True, autograph=False).get_concrete_function(*signature)
