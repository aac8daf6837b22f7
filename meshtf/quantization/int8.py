"""Products of int8 numbers, summed in int32."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.einsum import EinsumOperation
from meshtf.quantization.product_module import INT8_TYPES, PLATFORM, module_text


def int8_einsum(x: Tensor, y: Tensor, output_shape: Shape) -> Tensor:
    """The einsum of int8 numbers, summed in int32: exact if int32 holds the sums.

    On a GPU, XLA turns it into one int8 product, because GPUs have no fast int32 product. Elsewhere each core
    multiplies the same numbers in int32. Slices that are gathered are sent as int8.
    """
    return EinsumOperation([x, y], output_shape, "int8_einsum", decoder=_Int8Decoder()).outputs[0]


class _Int8Decoder:
    dtype = tf.int32

    def __call__(self, kept: tf.Tensor) -> tf.Tensor:
        return tf.cast(kept, tf.int32)

    def module(
        self, platform: str, slices: Sequence[tf.TensorSpec], names: Sequence[Sequence[str]], output: Sequence[str]
    ) -> str | None:
        return module_text(INT8_TYPES, slices, names, output) if platform == PLATFORM else None
