"""The operation that converts to another element type, and how gradients get around it."""

from __future__ import annotations

import tensorflow as tf

from meshtf.graph.dtypes import is_differentiable
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.elementwise_operation import CastKernel, ElementwiseOperation


def converted(x: Tensor, dtype: tf.DType, name: str = "cast") -> Tensor:
    """x in this dtype. Gradients are cast back. Sums over cores may wait behind a cast to a wider dtype."""
    source = x.dtype
    if source == dtype:
        return x
    both = is_differentiable(source) and is_differentiable(dtype)
    return ElementwiseOperation(
        name,
        CastKernel(dtype),
        [x],
        output_dtype=dtype,
        gradient=(lambda op, dy: (converted(dy, source),)) if both else None,
        is_linear=both and dtype.size > source.size,
    ).outputs[0]


def before_cast(x: Tensor) -> Tensor:
    """The operand of the floating cast that made x, or else x.

    Work that only moves elements, and sums that are rounded once, give the same on the operand, with a cast after them.
    There a sum over cores may wait longer, since it must be done before a cast to a narrower dtype.
    """
    operation = x.operation
    if not isinstance(operation, ElementwiseOperation) or not isinstance(operation.kernel, CastKernel):
        return x
    (operand,) = operation.inputs
    return operand if is_differentiable(operand.dtype) and operand.shape == x.shape else x
