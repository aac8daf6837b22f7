"""The modules that TensorFlow hands to XLA's compiler: a traced function as StableHLO or HLO, and HLO as an object.

Public ways that do not do:

- `Context.get_compiler_ir`: the public `tf.function(...).experimental_get_compiler_ir` ends in it. To find a device it
  draws one of the user's seeded random numbers, unless it is given `device_name`, and then it warns that this is
  deprecated.
- `hlo_pb2`, `xla_data_pb2`: TensorFlow exports no proto of HLO. jaxlib reads HLO too, but is not installed with meshtf.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from meshtf.tensorflow_private.eager_context import running

MAY_ALIAS: int = cast("Any", hlo_pb2).MAY_ALIAS
"""How a result of a module may take the memory of a parameter: if the caller gives it away."""

PRECISIONS: dict[str, int] = {
    name: cast("Any", xla_data_pb2).PrecisionConfig.Precision.Value(name.upper())
    for name in ("default", "high", "highest")
}
"""The precisions that a product's operands may have, by XLA's names in small letters."""

FLOAT8: int = cast("Any", xla_data_pb2).F8E4M3FN
"""The element type of float8_e4m3fn in HLO."""


def stablehlo_of(function: tf.types.experimental.ConcreteFunction, signature: Sequence[tf.TensorSpec]) -> bytes:
    """A function traced with `jit_compile=True`, as a serialized StableHLO module."""
    return _compiler_ir(function, signature, "stablehlo_serialized")


def hlo_of(function: tf.types.experimental.ConcreteFunction, signature: Sequence[tf.TensorSpec]) -> bytes:
    """A function traced with `jit_compile=True`, as a serialized HloModuleProto; empty where that takes over 2 GiB."""
    return _compiler_ir(function, signature, "hlo_serialized")


def _compiler_ir(
    function: tf.types.experimental.ConcreteFunction, signature: Sequence[tf.TensorSpec], stage: str
) -> bytes:
    return running().get_compiler_ir(
        device_name="",
        platform_name="CPU",
        function_name=cast("Any", function).name,
        flat_args=list(signature),
        captured_inputs=function.captured_inputs,
        stage=stage,
    )


def parsed_hlo(hlo: bytes) -> Any:
    """The HloModuleProto that was serialized."""
    return cast("Any", hlo_pb2).HloModuleProto.FromString(hlo)
