"""`where`: the choice between two tensors, element by element."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import ShapeLike
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.elementwise.unary_and_binary import tensors_of_one_dtype
from meshtf.ops.inputs.accepted_dtypes import BOOL, require
from meshtf.ops.inputs.constants import constant
from meshtf.ops.inputs.scalars import Operand, is_scalar


@language_function
def where(condition: Tensor, if_true: Operand, if_false: Operand, output_shape: ShapeLike | None = None) -> Tensor:
    """`if_true` where the condition holds, else `if_false`.

    Nothing leaks from the branch that is not taken, not even NaN.

    It does not leak into gradients either. A gradient of 0 stays 0 through elementwise functions and quotients, even if
    their slope is infinite or NaN, and through products of tensors with the same dimensions. If a product is summed
    (`einsum`, or a factor that is repeated along a dimension), 0 times an infinity is NaN. Then choose the operand with
    `where` as well.

    Args:
      condition: bool.
      if_true: a tensor, or a number, which takes the dtype of the other; float32 where both are numbers.
      if_false: the same.
      output_shape: the dimensions of the result, in order. It is repeated along those that no operand has.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the condition is not bool, or the dtypes differ.

    Examples:
      >>> numbers = mtf.constant(mesh, [4.0, 0.0], "n:2")
      >>> value(mtf.where(numbers > 0.0, 1.0 / numbers, 0.0))
      array([0.25, 0.  ], dtype=float32)
      >>> n = mtf.constant(mesh, [4.0, 0.0], "n:2")
      >>> value(mtf.gradients([mtf.where(n > 0.0, mtf.sqrt(n), 0.0)], [n])[0])
      array([0.25, 0.  ], dtype=float32)
      >>> mtf.where(x > 0.0, x, mtf.zeros(mesh, "hidden:8"))
      where_2 [batch:4 hidden:8] float32
    """
    require(check_tensor(condition), BOOL)
    if is_scalar(if_true) and is_scalar(if_false):
        if_true = constant(condition.mesh, if_true, dtype=tf.float32)
    first, second = tensors_of_one_dtype(if_true, if_false)

    def gradient(op: ElementwiseOperation, dy: Tensor) -> list[Tensor | None]:
        chosen = op.inputs[0]
        return [None, where(chosen, dy, 0), where(chosen, 0, dy)]

    return ElementwiseOperation(
        "where",
        tf.where,
        [condition, first, second],
        output_shape=output_shape,
        output_dtype=first.dtype,
        gradient=gradient,
    ).outputs[0]
