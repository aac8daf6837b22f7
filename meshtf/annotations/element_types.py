"""The names of annotations: `mtf.f32["batch:64"]` is a float32 tensor [batch:64].

Type checkers read each of them as `mtf.Tensor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from meshtf.annotations.tensor_annotation import TensorAnnotation

if TYPE_CHECKING:
    from meshtf.graph.tensor import Tensor

    bf16 = f16 = f32 = f64 = Tensor
    i8 = i16 = i32 = i64 = Tensor
    u8 = c64 = c128 = bool_ = Tensor
else:
    bf16, f16, f32, f64 = map(TensorAnnotation, (tf.bfloat16, tf.float16, tf.float32, tf.float64))
    i8, i16, i32, i64 = map(TensorAnnotation, (tf.int8, tf.int16, tf.int32, tf.int64))
    u8, c64, c128, bool_ = map(TensorAnnotation, (tf.uint8, tf.complex64, tf.complex128, tf.bool))
