"""Addition, multiplication and functions made of them. The linear ones pass pending sums on."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.errors import DtypeError
from meshtf.graph.dtypes import sum_dtype
from meshtf.graph.tensor import Tensor, check_tensor, check_tensors, same_dtype
from meshtf.ops.algebra import wrapping_integers
from meshtf.ops.algebra.broadcasting import broadcast_shape
from meshtf.ops.algebra.casting import before_cast, converted
from meshtf.ops.algebra.einsum import einsum
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation, ScalarKernel, conjugate
from meshtf.ops.algebra.mask import MaskOperation
from meshtf.ops.algebra.slopes import over_divisor, times_slope
from meshtf.ops.inputs.accepted_dtypes import FLOATING, NUMBER, require
from meshtf.ops.inputs.scalars import Operand, check_number, is_scalar, scalar_constant


@language_function
def add(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 + x2, broadcast by name. Either may be a scalar.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool.

    Examples:
      >>> bias = mtf.ones(mesh, "hidden:8")
      >>> mtf.add(x, bias)
      add [batch:4 hidden:8] float32
      >>> x + 1.0
      add_1 [batch:4 hidden:8] float32
    """
    if is_scalar(x2):
        return _scalar_add(check_tensor(x1), x2, output_shape, name)
    if is_scalar(x1):
        return _scalar_add(check_tensor(x2), x1, output_shape, name)
    x1, x2 = check_tensor(x1, beside=x2), check_tensor(x2, beside=x1)
    check_number(same_dtype([x1, x2]))
    return ElementwiseOperation(
        name or "add", tf.add, [x1, x2], output_shape=output_shape, gradient=lambda op, dy: (dy, dy), is_linear=True
    ).outputs[0]


@language_function
def sub(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 - x2, broadcast by name. Either may be a scalar.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool.

    Examples:
      >>> mtf.sub(x, mtf.reduce_mean(x, reduced_dim="hidden"))
      sub [batch:4 hidden:8] float32
      >>> 1.0 - x
      sub_1 [batch:4 hidden:8] float32
    """
    if is_scalar(x2):
        x1 = check_tensor(x1)
        check_number(x1.dtype)
        # Integers wrap: in uint8, x - 1 is x + 255.
        return _scalar_add(x1, np.negative(scalar_constant(x2, x1.dtype)), output_shape, name or "sub")
    if is_scalar(x1):
        return _scalar_add(negative(check_tensor(x2)), x1, output_shape, name or "sub")
    x1, x2 = check_tensor(x1, beside=x2), check_tensor(x2, beside=x1)
    check_number(same_dtype([x1, x2]))
    return ElementwiseOperation(
        name or "sub",
        tf.subtract,
        [x1, x2],
        output_shape=output_shape,
        gradient=lambda op, dy: (dy, negative(dy)),
        is_linear=True,
    ).outputs[0]


def _negated(x: tf.Tensor) -> tf.Tensor:
    """-x. TensorFlow has no kernel for unsigned integers; they wrap, as in NumPy."""
    return tf.zeros_like(x) - x if x.dtype.is_unsigned else tf.negative(x)


@language_function
def negative(x: Tensor, name: str = "negative") -> Tensor:
    """-x.

    Examples:
      >>> value(mtf.negative(mtf.range(mesh, ("n", 3))))
      array([ 0, -1, -2], dtype=int32)
    """
    check_number(check_tensor(x).dtype)
    return ElementwiseOperation(name, _negated, [x], gradient=lambda op, dy: (negative(dy),), is_linear=True).outputs[0]


@language_function
def multiply(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 * x2, broadcast by name. Either may be a scalar.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, or are bool.

    Examples:
      >>> rows, columns = mtf.ones(mesh, "rows:2"), mtf.ones(mesh, "columns:3")
      >>> mtf.multiply(rows, columns)
      multiply [rows:2 columns:3] float32
      >>> mtf.multiply(rows, columns, output_shape="columns:3 rows:2")
      multiply_1 [columns:3 rows:2] float32
    """
    if is_scalar(x2):
        return _scalar_multiply(check_tensor(x1), x2, output_shape, name)
    if is_scalar(x1):
        return _scalar_multiply(check_tensor(x2), x1, output_shape, name)
    x1, x2 = check_tensor(x1, beside=x2), check_tensor(x2, beside=x1)
    check_number(same_dtype([x1, x2]))
    shape = broadcast_shape([x1.shape, x2.shape], output_shape)
    kernel = wrapping_integers.product if x1.dtype.is_integer else tf.multiply
    return ElementwiseOperation(
        name or "multiply", kernel, [x1, x2], output_shape=shape, gradient=_multiply_gradient
    ).outputs[0]


@language_function
def divide(x1: Operand, x2: Operand, output_shape: ShapeLike | None = None, name: str | None = None) -> Tensor:
    """x1 / x2, broadcast by name. Either may be a scalar.

    Args:
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.
      name: the operation's name.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ, are integers (cast them, or use `floordiv`), or x2 is the scalar 0.

    Examples:
      >>> mtf.divide(x, mtf.reduce_sum(x, reduced_dim="hidden"))
      divide [batch:4 hidden:8] float32
      >>> x / 8.0
      divide_1 [batch:4 hidden:8] float32
    """
    first = x1 if isinstance(x1, Tensor) else check_tensor(x2)
    if not (first.dtype.is_floating or first.dtype.is_complex):
        raise DtypeError(f"{first.dtype.name} cannot be divided exactly; use mtf.floordiv, or mtf.cast to a float")
    if is_scalar(x2):
        if not x2:
            raise DtypeError("division by the scalar 0")
        return _scalar_divide(check_tensor(x1), x2, output_shape, name)
    if is_scalar(x1):
        return _divided_scalar(x1, check_tensor(x2), output_shape, name)
    x1, x2 = check_tensor(x1, beside=x2), check_tensor(x2, beside=x1)
    same_dtype([x1, x2])
    return ElementwiseOperation(
        name or "divide",
        tf.divide,
        [x1, x2],
        output_shape=output_shape,
        gradient=_divide_gradient,
    ).outputs[0]


@language_function
def square(x: Tensor, name: str = "square") -> Tensor:
    """x times x.

    Examples:
      >>> value(mtf.square(mtf.range(mesh, ("n", 4))))
      array([0, 1, 4, 9], dtype=int32)
    """
    require(check_tensor(x), NUMBER)
    kernel = wrapping_integers.square if x.dtype.is_integer else tf.square
    return ElementwiseOperation(name, kernel, [x], gradient=_square_gradient).outputs[0]


@language_function
def reciprocal(x: Tensor, name: str = "reciprocal") -> Tensor:
    """1 / x.

    Examples:
      >>> value(mtf.reciprocal(mtf.constant(mesh, [2.0, -4.0], "n:2")))
      array([ 0.5 , -0.25], dtype=float32)
    """
    require(check_tensor(x), FLOATING)
    return ElementwiseOperation(name, tf.math.reciprocal, [x], gradient=_reciprocal_gradient).outputs[0]


@language_function
def add_n(xs: Sequence[Tensor]) -> Tensor | Literal[0]:
    """Adds tensors in a fixed order, so that the bits are always the same. The sum of no tensors is the number 0.

    float16 and bfloat16 are added in float32, and rounded once.

    Examples:
      >>> mtf.add_n([x, 2.0 * x, mtf.square(x)])
      add_1 [batch:4 hidden:8] float32
      >>> mtf.add_n([])
      0
    """
    tensors = check_tensors(xs)
    if not tensors:
        return 0
    if len(tensors) > 2 and sum_dtype(same_dtype(tensors)) != tensors[0].dtype:
        return ElementwiseOperation(
            "add_n", _rounded_once, tensors, gradient=lambda op, dy: [dy] * len(op.inputs), is_linear=True
        ).outputs[0]
    total = tensors[0]
    for x in tensors[1:]:
        total = add(total, x)
    return total


def _rounded_once(*terms: tf.Tensor) -> tf.Tensor:
    """The sum of narrow floats. TensorFlow's AddN would add in any order."""
    dtype = terms[0].dtype
    return tf.cast(functools.reduce(tf.add, [tf.cast(x, sum_dtype(dtype)) for x in terms]), dtype)


@language_function
def stop_gradient(x: Tensor, where: Tensor | None = None) -> Tensor:
    """x without a gradient: everywhere, or only where the condition `where`, over some of its dimensions, is true.

    Raises:
      DtypeError: `where` is not bool.
      ShapeError: `where` has dimensions that x does not have.

    Examples:
      >>> w = mtf.constant(mesh, [1.0, 2.0], "n:2")
      >>> y = w * mtf.stop_gradient(w)
      >>> value(mtf.gradients([y], [w])[0])
      array([1., 2.], dtype=float32)
    """
    if where is None:
        return ElementwiseOperation("stop_gradient", tf.identity, [check_tensor(x)], is_linear=True).outputs[0]
    if check_tensor(where).dtype != tf.bool:
        raise DtypeError(f"where must be a bool condition, not {where.dtype.name}; make one with a comparison")
    for dim in where.shape:
        check_tensor(x).shape.axis(dim)
    flows = ElementwiseOperation("logical_not", tf.logical_not, [where]).outputs[0]

    return ElementwiseOperation(
        "stop_gradient", tf.identity, [x], gradient=lambda op, dy: (_masked(dy, flows),), is_linear=True
    ).outputs[0]


def _masked(x: Tensor, condition: Tensor) -> Tensor:
    """x where the condition holds, and 0 elsewhere. A cast that made x is done last."""
    return converted(MaskOperation(before_cast(x), condition).outputs[0], x.dtype)


@language_function
def identity(x: Tensor, name: str = "identity") -> Tensor:
    """x as the result of a new operation, which can have its own name.

    Examples:
      >>> mtf.identity(x, name="hidden_state")
      hidden_state [batch:4 hidden:8] float32
    """
    return ElementwiseOperation(
        name, tf.identity, [check_tensor(x)], gradient=lambda op, dy: (dy,), is_linear=True
    ).outputs[0]


def _scalar_add(x: Tensor, scalar: Any, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    check_number(x.dtype)
    constant = scalar_constant(scalar, x.dtype)
    return ElementwiseOperation(
        name or "add",
        ScalarKernel(tf.add, constant.item(), x.dtype),
        [x],
        output_shape=output_shape,
        gradient=lambda op, dy: (dy,),
    ).outputs[0]


def _scalar_multiply(x: Tensor, scalar: Any, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    check_number(x.dtype)
    constant = scalar_constant(scalar, x.dtype)
    return ElementwiseOperation(
        name or "multiply",
        ScalarKernel(tf.multiply, constant.item(), x.dtype),
        [x],
        output_shape=output_shape,
        gradient=lambda op, dy: (_scalar_multiply(dy, np.conj(constant), None, None),),
        is_linear=True,
    ).outputs[0]


def _scalar_divide(x: Tensor, scalar: Any, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    constant = scalar_constant(scalar, x.dtype)
    return ElementwiseOperation(
        name or "divide",
        ScalarKernel(tf.divide, constant.item(), x.dtype),
        [x],
        output_shape=output_shape,
        gradient=lambda op, dy: (_scalar_divide(dy, np.conj(constant), None, None),),
        is_linear=True,
    ).outputs[0]


def _divided_scalar(scalar: Any, x: Tensor, output_shape: ShapeLike | None, name: str | None) -> Tensor:
    """scalar / x, rounded once. The reciprocal of x may be infinite, or 0, where the quotient is not."""
    return ElementwiseOperation(
        name or "divide",
        ScalarKernel(_over, scalar_constant(scalar, x.dtype).item(), x.dtype),
        [x],
        output_shape=output_shape,
        gradient=_divided_scalar_gradient,
    ).outputs[0]


def _over(x: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
    return tf.divide(number, x)


def _multiply_gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
    x1, x2 = op.inputs
    return [_by_factor(op, dy, own, other) for own, other in ((x1, x2), (x2, x1))]


def _by_factor(op: ElementwiseOperation, dy: Tensor, own: Tensor, other: Tensor) -> Tensor:
    """The gradient of a factor: dy times the other factor, summed over the dimensions along which it was repeated."""
    shape = op.outputs[0].shape
    if own.shape.ndims == shape.ndims:
        return times_slope(dy, conjugate(other), shape)
    return einsum([dy, conjugate(other)], output_shape=own.shape)


def _divide_gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
    x1, x2 = op.inputs
    dx1 = over_divisor(dy, conjugate(x2))
    return [dx1, negative(times_slope(dx1, conjugate(divide(x1, x2))))]


def _divided_scalar_gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
    (x,), (y,) = op.inputs, op.outputs
    return [negative(times_slope(over_divisor(dy, conjugate(x)), conjugate(y)))]


def _square_gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
    # dy may have fewer dimensions than x, as the gradient of a mean has, so `times_slope` broadcasts it.
    return [times_slope(multiply(dy, 2), conjugate(op.inputs[0]))]


def _reciprocal_gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
    return [times_slope(dy, conjugate(negative(square(op.outputs[0]))))]
