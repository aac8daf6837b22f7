"""Functions compiled by XLA whose bodies TensorFlow's graph optimizers cannot see.

In a `tf.function(jit_compile=True)` called from a traced program, Grappler rewrites the body before XLA compiles it:
normals drawn there differed in the last bit from those of an eager call. Here the body is lowered to StableHLO once,
and the function is a single op that carries it. So the same instructions run wherever it is called. It is cheaper too:
TensorFlow analyses the body at every place that calls it on every core, at a millisecond for 200 ops.
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
    """The compiled `function` of one result, for arguments of static shapes; traced outside of every graph and device.

    Concrete: a `tf.function` would be traced again for each device and graph that calls it.
    """
    with tf.init_scope(), tf.device(None):
        concrete = tf.function(function, jit_compile=True, autograph=False).get_concrete_function(*signature)
        result = concrete.structured_outputs
        # What the public `experimental_get_compiler_ir` calls, which also draws from the user's seeded random numbers.
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
