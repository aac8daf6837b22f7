"""The product of quantized tensors, whose sum is exact."""

from __future__ import annotations

import math

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike
from meshtf.errors import ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.quantization.quantized_tensor import QuantizedTensor

MOST_TERMS = (2**31 - 1) // 128**2
"""The number of products of int8 numbers whose sum int32 holds, whatever the numbers are."""


@language_function
def quantized_einsum(x: QuantizedTensor, y: QuantizedTensor, output_shape: ShapeLike) -> Tensor:
    """The product of two quantized tensors, summed over the dimensions that `output_shape` lacks: float32.

    The products of int8 numbers are summed in int32, over cores too, which is exact. Then each sum is converted to
    float32, and multiplied by the scale of x and that of y. So every layout gives the same result, to the bit.

    Args:
      x: numbers whose scale is over dimensions of the result, such as activations with one scale for each row.
      y: the same, such as weights with one scale for each output.
      output_shape: dimensions of the result, in order.

    Raises:
      ShapeError: a scale differs along a dimension that is summed, or is in groups; or sizes disagree; or more than
        131,071 products are summed, for which int32 may be too small.

    Examples:
      >>> w = mtf.ones(mesh, "hidden:8 d_ff:2")
      >>> quantize = mtf.quantization.quantize
      >>> y = mtf.quantization.quantized_einsum(quantize(x, "hidden"), quantize(w, "hidden"), "batch d_ff")
      >>> y.shape, y.dtype
      (Shape[batch:4 d_ff:2], tf.float32)
    """
    wide = [mtf.cast(q.values, tf.int32) for q in (x, y)]
    total = mtf.einsum(wide, output_shape=output_shape)
    for q in (x, y):
        _check_scale(q, total.shape)
    sizes = {d.name: d.size for q in (x, y) for d in q.shape if not total.shape.has(d.name)}
    if math.prod(sizes.values()) > MOST_TERMS:
        raise ShapeError(
            f"a sum of {math.prod(sizes.values())} products of int8, over {', '.join(sizes)}, may be more than int32 "
            f"holds; sum at most {MOST_TERMS}, or multiply the dequantized() tensors"
        )
    return mtf.cast(total, tf.float32) * x.scale * y.scale


def _check_scale(q: QuantizedTensor, result: Shape) -> None:
    for dim in q.scale.shape:
        if not result.has(dim.name):
            raise ShapeError(
                f'the scale [{q.scale.shape}] of values [{q.shape}] has dimension "{dim.name}", which is summed; '
                f"quantize over it, or multiply the dequantized() tensors"
            )
        if q.shape.dims[q.shape.axis(dim.name)].size != dim.size:
            raise ShapeError(
                f'the scale [{q.scale.shape}] of values [{q.shape}] is in groups along "{dim.name}"; multiply the '
                f"dequantized() tensors"
            )
