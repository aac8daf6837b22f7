"""Makes the text of StableHLO modules with one collective each, for TensorFlow's XlaCallModule.

https://openxla.org/stablehlo/spec defines them. TensorFlow's own XLA collectives lack half of the element types, and
its collectives for TPUs do not compile for other devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.errors import DtypeError
from meshtf.tensorflow_private.xla_operations import call_module

_TYPES = {
    tf.bool: "i1",
    tf.bfloat16: "bf16",
    tf.float16: "f16",
    tf.float32: "f32",
    tf.float64: "f64",
    tf.int8: "i8",
    tf.int16: "i16",
    tf.int32: "i32",
    tf.int64: "i64",
    tf.uint8: "ui8",
    tf.uint16: "ui16",
    tf.uint32: "ui32",
    tf.uint64: "ui64",
    tf.complex64: "complex<f32>",
    tf.complex128: "complex<f64>",
}

_MODULE = """\
module @collective {{
  func.func public @main(%x: {given}) -> {result} {{
    %y = "stablehlo.{op}"(%x) {region}{{{attributes}}} : ({given}) -> {result}
    return %y : {result}
  }}
}}
"""

_REGION = """\
({{
      ^bb0(%a: tensor<{element}>, %b: tensor<{element}>):
        %c = stablehlo.{combine} %a, %b : tensor<{element}>
        "stablehlo.return"(%c) : (tensor<{element}>) -> ()
    }}) """


def collective(
    op: str, x: tf.Tensor, result_shape: Sequence[int], attributes: Sequence[str], combine: str = ""
) -> tf.Tensor:
    """Emits a collective of StableHLO.

    Args:
      op: the collective's name, without the prefix `stablehlo`.
      x: a tensor with a static shape.
      result_shape: the shape of the result, which has the dtype of `x`.
      attributes: attributes in MLIR's text, such as `split_count = 4 : i64`.
      combine: the operation on two elements, in a collective that reduces.
    """
    module = _MODULE.format(
        given=tensor_type(x.shape.as_list(), x.dtype),
        result=tensor_type(result_shape, x.dtype),
        op=op,
        region=_REGION.format(element=element_type(x.dtype), combine=combine) if combine else "",
        attributes=", ".join(attributes),
    )
    return call_module([x], module, [tf.TensorSpec(result_shape, x.dtype)], "TPU")[0]


def element_type(dtype: tf.DType) -> str:
    """MLIR's name of an element type. Raises DtypeError if there is none."""
    if dtype not in _TYPES:
        raise DtypeError(f"XLA has no collectives for {dtype.name}")
    return _TYPES[dtype]


def tensor_type(shape: Sequence[int], dtype: tf.DType) -> str:
    """The type of a tensor in MLIR's text, such as `tensor<4x8xf32>`."""
    return f"tensor<{''.join(f'{n}x' for n in shape)}{element_type(dtype)}>"


def integers(rows: np.ndarray) -> str:
    """A matrix of int64, as an attribute."""
    inner = ", ".join(f"[{', '.join(map(str, row))}]" for row in rows.tolist())
    return f"dense<[{inner}]> : tensor<{rows.shape[0]}x{rows.shape[1]}xi64>"
