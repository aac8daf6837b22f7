"""Addition, multiplication and what is made of them: the operations that pass pending sums on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike, convert_to_shape
from meshtf.errors import DtypeError
from meshtf.graph import Tensor, check_tensor, check_tensors, same_dtype
from meshtf.ops.algebra.broadcasting import broadcast_shape
from meshtf.ops.algebra.einsum import einsum
from meshtf.ops.algebra.mask import MaskOperation
from meshtf.ops.algebra.pointwise import PointwiseOperation, ScalarKernel, conjugate
from meshtf.ops.inputs.accepted_dtypes import FLOATING, NUMBER, require
from meshtf.ops.inputs.scalars import Operand, check_number, is_scalar, scalar_constant


@language_function
def add(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 + x2, broadcast by name. Either may be a scalar."""
    if is_scalar(x2):
        return _scalar_add(check_tensor(x1), x2, output_shape, name)
    if is_scalar(x1):
        return _scalar_add(check_tensor(x2), x1, output_shape, name)
    x1, x2 = check_tensor(x1), check_tensor(x2)
    check_number(same_dtype([x1, x2]))
    shape = convert_to_shape(output_shape)
    return PointwiseOperation(
        name or "add", tf.add, [x1, x2], output_shape=shape, gradient=lambda op, dy: (dy, dy), is_linear=True
    ).outputs[0]


@language_function
def sub(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 - x2, broadcast by name. Either may be a scalar."""
    if is_scalar(x2):
        x1 = check_tensor(x1)
        check_number(x1.dtype)
        return _scalar_add(x1, -np.asarray(x2), output_shape, name or "sub")
    if is_scalar(x1):
        return _scalar_add(negative(check_tensor(x2)), x1, output_shape, name or "sub")
    x1, x2 = check_tensor(x1), check_tensor(x2)
    check_number(same_dtype([x1, x2]))
    shape = convert_to_shape(output_shape)
    return PointwiseOperation(
        name or "sub",
        tf.subtract,
        [x1, x2],
        output_shape=shape,
        gradient=lambda op, dy: (dy, negative(dy)),
        is_linear=True,
    ).outputs[0]


@language_function
def negative(x: Tensor, name: str = "negative") -> Tensor:
    """-x."""
    check_number(check_tensor(x).dtype)
    return PointwiseOperation(name, tf.negative, [x], gradient=lambda op, dy: (negative(dy),), is_linear=True).outputs[
        0
    ]


@language_function
def multiply(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 * x2, broadcast by name. Either may be a scalar."""
    if is_scalar(x2):
        return _scalar_multiply(check_tensor(x1), x2, output_shape, name)
    if is_scalar(x1):
        return _scalar_multiply(check_tensor(x2), x1, output_shape, name)
    x1, x2 = check_tensor(x1), check_tensor(x2)
    check_number(same_dtype([x1, x2]))
    shape = broadcast_shape([x1.shape, x2.shape], convert_to_shape(output_shape))
    return PointwiseOperation(
        name or "multiply", tf.multiply, [x1, x2], output_shape=shape, gradient=_multiply_gradient
    ).outputs[0]


@language_function
def divide(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 / x2, broadcast by name. Either may be a scalar. Integers divide as in Python 3's `/` only after a cast."""
    first = x1 if isinstance(x1, Tensor) else check_tensor(x2)
    if not (first.dtype.is_floating or first.dtype.is_complex):
        raise DtypeError(f"{first.dtype.name} cannot be divided exactly; use mtf.floordiv, or mtf.cast to a float")
    if is_scalar(x2):
        if not x2:
            raise DtypeError("division by the scalar 0")
        return _scalar_divide(check_tensor(x1), x2, output_shape, name)
    if is_scalar(x1):
        return _scalar_multiply(reciprocal(check_tensor(x2)), x1, output_shape, name or "divide")
    x1, x2 = check_tensor(x1), check_tensor(x2)
    same_dtype([x1, x2])
    return PointwiseOperation(
        name or "divide",
        tf.divide,
        [x1, x2],
        output_shape=convert_to_shape(output_shape),
        gradient=_divide_gradient,
    ).outputs[0]


@language_function
def square(x: Tensor, name: str = "square") -> Tensor:
    """x times x."""
    require(check_tensor(x), NUMBER)
    return PointwiseOperation(name, tf.square, [x], gradient=_square_gradient).outputs[0]


@language_function
def reciprocal(x: Tensor, name: str = "reciprocal") -> Tensor:
    """1 / x."""
    require(check_tensor(x), FLOATING)
    return PointwiseOperation(name, tf.math.reciprocal, [x], gradient=_reciprocal_gradient).outputs[0]


@language_function
def add_n(xs: Sequence[Tensor]) -> Tensor | Literal[0]:
    """Adds tensors pairwise in a fixed order, so that the bits are always the same. The sum of none is the number 0."""
    tensors = check_tensors(xs)
    if not tensors:
        return 0
    total = tensors[0]
    for x in tensors[1:]:
        total = add(total, x)
    return total


@language_function
def stop_gradient(x: Tensor, where: Tensor | None = None) -> Tensor:
    """x, through which no gradient flows: none at all, or none where a condition over some of its dimensions holds.

    Raises:
      DtypeError: `where` is not bool.
      ShapeError: it has dimensions that x has not.
    """
    if where is None:
        return PointwiseOperation("stop_gradient", tf.identity, [check_tensor(x)], is_linear=True).outputs[0]
    if check_tensor(where).dtype != tf.bool:
        raise DtypeError(f"where is a condition, bool, and not {where.dtype.name}; make it by comparing")
    for dim in where.shape:
        check_tensor(x).shape.axis(dim)
    flows = PointwiseOperation("logical_not", tf.logical_not, [where]).outputs[0]
    return PointwiseOperation(
        "stop_gradient", tf.identity, [x], gradient=lambda op, dy: MaskOperation(dy, flows).outputs, is_linear=True
    ).outputs[0]


@language_function
def identity(x: Tensor, name: str = "identity") -> Tensor:
    """x."""
    return PointwiseOperation(
        name, tf.identity, [check_tensor(x)], gradient=lambda op, dy: (dy,), is_linear=True
    ).outputs[0]


def _scalar_add(x: Tensor, scalar: Any, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    check_number(x.dtype)
    constant = scalar_constant(scalar, x.dtype)
    return PointwiseOperation(
        name or "add",
        ScalarKernel(tf.add, constant.item(), x.dtype),
        [x],
        output_shape=convert_to_shape(output_shape),
        gradient=lambda op, dy: (dy,),
    ).outputs[0]


def _scalar_multiply(x: Tensor, scalar: Any, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    check_number(x.dtype)
    constant = scalar_constant(scalar, x.dtype)
    return PointwiseOperation(
        name or "multiply",
        ScalarKernel(tf.multiply, constant.item(), x.dtype),
        [x],
        output_shape=convert_to_shape(output_shape),
        gradient=lambda op, dy: (_scalar_multiply(dy, np.conj(constant), None, None),),
        is_linear=True,
    ).outputs[0]


def _scalar_divide(x: Tensor, scalar: Any, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    constant = scalar_constant(scalar, x.dtype)
    return PointwiseOperation(
        name or "divide",
        ScalarKernel(tf.divide, constant.item(), x.dtype),
        [x],
        output_shape=convert_to_shape(output_shape),
        gradient=lambda op, dy: (_scalar_divide(dy, np.conj(constant), None, None),),
        is_linear=True,
    ).outputs[0]


def _multiply_gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
    x1, x2 = op.inputs
    return [einsum([dy, conjugate(x2)], output_shape=x1.shape), einsum([dy, conjugate(x1)], output_shape=x2.shape)]


def _divide_gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
    x1, x2 = op.inputs
    dx1 = divide(dy, conjugate(x2))
    return [dx1, negative(multiply(dx1, conjugate(divide(x1, x2))))]


def _square_gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
    return [multiply(dy, conjugate(multiply(2, op.inputs[0])))]


def _reciprocal_gradient(op: PointwiseOperation, dy: Tensor) -> list[Tensor | None]:
    return [multiply(dy, conjugate(negative(square(op.outputs[0]))))]
