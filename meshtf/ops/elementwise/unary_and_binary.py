"""Makes elementwise functions of one tensor or two from a kernel and its derivative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor, check_tensor, same_dtype
from meshtf.ops.algebra.arithmetic import multiply
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation, conjugate
from meshtf.ops.algebra.slopes import times_slope
from meshtf.ops.inputs.accepted_dtypes import ANY, FLOATING, require
from meshtf.ops.inputs.constants import constant
from meshtf.ops.inputs.scalars import Operand, is_scalar, scalar_constant
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work.work_facts import Kernel


def _with_slope(dy: Tensor, slope: Operand) -> Tensor:
    return times_slope(dy, conjugate(slope)) if isinstance(slope, Tensor) else multiply(dy, slope)


def unary(
    x: Tensor,
    name: str,
    kernel: Kernel,
    slope: Callable[[Tensor, Tensor], Any] | None,
    accepts: str = FLOATING,
) -> Tensor:
    """An elementwise function of one tensor. `slope(x, y)` is its derivative; with None, it has no gradient."""
    require(check_tensor(x), accepts)

    def gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
        assert slope is not None
        return [_with_slope(dy, slope(op.inputs[0], op.outputs[0]))]

    return ElementwiseOperation(name, kernel, [x], gradient=gradient if slope is not None else None).outputs[0]


def binary(
    x1: Operand,
    x2: Operand,
    output_shape: ShapeLike | None,
    name: str,
    kernel: Kernel,
    *,
    slopes: Callable[[Tensor, Tensor, Tensor], tuple[Any, Any]] | None = None,
    output_dtype: tf.DType | None = None,
    accepts: str = ANY,
) -> Tensor:
    """An elementwise function of two tensors. `slopes(x1, x2, y)` are its derivatives."""
    operands = tensors_of_one_dtype(x1, x2)
    require(operands[0], accepts)

    def gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
        assert slopes is not None
        x1, x2 = op.inputs
        return [_with_slope(dy, s) for s in slopes(x1, x2, op.outputs[0])]

    return ElementwiseOperation(
        name,
        kernel,
        operands,
        output_shape=output_shape,
        output_dtype=output_dtype,
        gradient=gradient if slopes is not None else None,
        padding=Fill(1) if operands[0].dtype.is_integer else None,  # a division of integers by 0 fails
    ).outputs[0]


def tensors_of_one_dtype(x1: Operand, x2: Operand) -> list[Tensor]:
    """Both as tensors of one dtype; a scalar takes the dtype of the other."""
    first = x1 if isinstance(x1, Tensor) else check_tensor(x2, beside=x1)
    made = [
        constant(first.mesh, scalar_constant(x, first.dtype), dtype=first.dtype)
        if is_scalar(x)
        else check_tensor(x, beside=first)
        for x in (x1, x2)
    ]
    same_dtype(made)
    return made
