"""The product of quantized tensors. The sum of int8 numbers is exact."""

from __future__ import annotations

import functools
import math

import tensorflow as tf

import meshtf as mtf
from meshtf.call_sites import language_function
from meshtf.dimension import Dimension, Shape, ShapeLike
from meshtf.errors import DtypeError, ShapeError
from meshtf.graph.tensor import Tensor
from meshtf.quantization.float8 import float8_einsum
from meshtf.quantization.int8 import int8_einsum
from meshtf.quantization.quantization import FLOAT8
from meshtf.quantization.quantized_tensor import QuantizedTensor
from meshtf.quantization.scales import in_groups

MOST_TERMS = (2**31 - 1) // 128**2
"""The number of products of int8 numbers whose sum int32 holds, whatever the numbers are."""

_SHARE_BITS = 30
"""The largest scale of a sum's groups becomes 2^30. Its product with an int32 sum fits into int64."""


@language_function
def quantized_einsum(x: QuantizedTensor, y: QuantizedTensor, output_shape: ShapeLike) -> Tensor:
    """The product of two quantized tensors, summed over the dimensions that `output_shape` lacks: float32.

    Products of int8 numbers are summed in int32, also over cores, which is exact. Then each sum is converted to
    float32, and multiplied by the scale of x and that of y. So every layout gives the same result, to the bit. NVIDIA
    GPUs multiply the int8 numbers directly; elsewhere they are multiplied in int32.

    If a scale has a summed dimension, perhaps in groups, each group has its own int32 sum. The scales of groups are
    rounded to multiples of 2^-30 of the largest one. The int32 sums, each times its multiple, are added in int64. So
    this addition is exact too.

    Products of float8 numbers are summed in float32, and so are groups. A layout then changes the rounding of sums, but
    no number and no scale. GPUs that multiply float8 (NVIDIA's from the H100 on) do so here; elsewhere the same numbers
    are multiplied in float32.

    Args:
      x: numbers whose scale is over dimensions of the result, such as activations with one scale for each row. The
        scale may also be in groups along a summed dimension.
      y: the same, such as weights with one scale for each output.
      output_shape: dimensions of the result, in order.

    Raises:
      DtypeError: one has int8 numbers, and the other float8.
      ShapeError: a scale is in groups along a dimension of the result. Or both scales have a dimension that is summed,
        but not in the same groups. Or sizes disagree. Or more than 131,071 products are summed, for which int32 may be
        too small.

    Examples:
      >>> w = mtf.ones(mesh, "hidden:8 d_ff:2")
      >>> quantize = mtf.quantization.quantize
      >>> y = mtf.quantization.quantized_einsum(quantize(x, "hidden"), quantize(w, "hidden"), "batch d_ff")
      >>> y.shape, y.dtype
      (Shape[batch:4 d_ff:2], tf.float32)
      >>> by_groups = quantize(w, "hidden", group_size=4)
      >>> value(mtf.quantization.quantized_einsum(quantize(mtf.ones(mesh, "hidden:8"), "hidden"), by_groups, "d_ff"))
      array([8., 8.], dtype=float32)
    """
    _check_alike(x, y)
    result = mtf.convert_to_shape(output_shape, [x.shape, y.shape])
    groups = _groups(x, y, result)
    factors = [q.scale for q in (x, y) if not _has_any(q.scale, groups)]
    scales = [q.scale for q in (x, y) if _has_any(q.scale, groups)]
    x_values, y_values = (mtf.reshape(q.values, in_groups(q.shape, groups)) for q in (x, y))
    if x.numbers == FLOAT8:
        total = float8_einsum(x_values, y_values, groups + result)
        total = mtf.einsum([total, *scales], output_shape=result) if scales else total
        return functools.reduce(mtf.multiply, factors, total)
    _check_terms(x, y, result)
    total = int8_einsum(x_values, y_values, groups + result)
    total = _sum_of_groups(total, scales, result) if scales else mtf.cast(total, tf.float32)
    return functools.reduce(mtf.multiply, factors, total)


def _sum_of_groups(totals: Tensor, scales: list[Tensor], result: Shape) -> Tensor:
    """The sum of int32 sums, each times the scales of its group. It is exact until it is converted to float32."""
    scale = functools.reduce(mtf.multiply, scales)
    largest = mtf.reduce_max(mtf.abs(scale), output_shape=[d for d in scale.shape if result.has(d.name)])
    divisor = mtf.where(mtf.equal(largest, 0.0), 1.0, largest)
    shares = mtf.cast(mtf.round(scale / divisor * 2.0**_SHARE_BITS), tf.int64)
    total = mtf.einsum([mtf.cast(totals, tf.int64), shares], output_shape=result)
    return mtf.cast(total, tf.float32) * 2.0**-_SHARE_BITS * largest


def _groups(x: QuantizedTensor, y: QuantizedTensor, result: Shape) -> Shape:
    """The summed dimensions that a scale has, each with the number of groups as its size."""
    found: dict[str, Dimension] = {}
    for q in (x, y):
        for dim in q.scale.shape:
            if result.has(dim.name):
                _check_has_no_groups(q, dim)
            elif found.setdefault(dim.name, dim) != dim:
                raise ShapeError(
                    f'the scales [{x.scale.shape}] and [{y.scale.shape}] have different groups along "{dim.name}", '
                    f"which is summed; give both the same group_size, or multiply the dequantized() tensors"
                )
    return Shape(list(found.values()))


def _check_alike(x: QuantizedTensor, y: QuantizedTensor) -> None:
    if x.numbers != y.numbers:
        raise DtypeError(
            f"{x.numbers} and {y.numbers} numbers cannot be multiplied; quantize both to one format, or multiply the "
            f"dequantized() tensors"
        )


def _check_has_no_groups(q: QuantizedTensor, dim: Dimension) -> None:
    if q.shape.dims[q.shape.axis(dim.name)] != dim:
        raise ShapeError(
            f'the scale [{q.scale.shape}] of values [{q.shape}] is in groups along "{dim.name}", a dimension of the '
            f"result; multiply the dequantized() tensors"
        )


def _check_terms(x: QuantizedTensor, y: QuantizedTensor, result: Shape) -> None:
    sizes = {d.name: d.size for q in (x, y) for d in q.shape if not result.has(d.name)}
    if math.prod(sizes.values()) > MOST_TERMS:
        raise ShapeError(
            f"a sum of {math.prod(sizes.values())} products of int8, over {', '.join(sizes)}, may overflow "
            f"int32; sum at most {MOST_TERMS}, or multiply the dequantized() tensors"
        )


def _has_any(scale: Tensor, groups: Shape) -> bool:
    return any(scale.shape.has(d.name) for d in groups)
