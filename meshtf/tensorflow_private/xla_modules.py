"""The modules that TensorFlow passes to XLA's compiler: a traced function as StableHLO or HLO, and parsed HLO.

Public alternatives that are not sufficient:

- `Context.get_compiler_ir`: the public `tf.function(...).experimental_get_compiler_ir` calls it. To find a device, that
  function draws one of the user's seeded random numbers. With `device_name` it does not, but then it warns that the
  argument is deprecated.
- `hlo_pb2`, `xla_data_pb2`: TensorFlow exports no HLO protos. jaxlib also reads HLO, but meshtf does not install it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

from meshtf.tensorflow_private.eager_context import running

MAY_ALIAS: int = cast("Any", hlo_pb2).MAY_ALIAS
"""The kind of alias by which a result may reuse the memory of a parameter, if the caller donates the parameter."""

PRECISIONS: dict[str, int] = {
    name: cast("Any", xla_data_pb2).PrecisionConfig.Precision.Value(name.upper())
    for name in ("default", "high", "highest")
}
"""The precisions of a product's operands, by XLA's names in lower case."""

FLOAT8: int = cast("Any", xla_data_pb2).F8E4M3FN
"""The element type of float8_e4m3fn in HLO."""


def stablehlo_of(function: tf.types.experimental.ConcreteFunction, signature: Sequence[tf.TensorSpec]) -> bytes:
    """A function traced with `jit_compile=True`, as a serialized StableHLO module."""
    return _compiler_ir(function, signature, "stablehlo_serialized")


def hlo_of(function: tf.types.experimental.ConcreteFunction, signature: Sequence[tf.TensorSpec]) -> bytes:
    """A function traced with `jit_compile=True`, as a serialized HloModuleProto; empty if that is over 2 GiB."""
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
    """Parses a serialized HloModuleProto."""
    return cast("Any", hlo_pb2).HloModuleProto.FromString(hlo)
