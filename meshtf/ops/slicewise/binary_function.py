"""`binary_op_with_broadcasting`: any elementwise TensorFlow function of two operands, broadcast by name."""

from __future__ import annotations

import tensorflow as tf

from meshtf.call_sites import language_function
from meshtf.dimension import Shape, ShapeLike
from meshtf.graph.dtypes import dtype_of
from meshtf.graph.tensor import Tensor
from meshtf.ops.algebra.broadcasting import aligner, broadcast_shape
from meshtf.ops.algebra.transpose_and_broadcast import broadcast
from meshtf.ops.elementwise.unary_and_binary import tensors_of_one_dtype
from meshtf.ops.inputs.scalars import Operand
from meshtf.ops.slicewise._arguments import check_operands
from meshtf.ops.slicewise.local_function import LocalFunction, name_of
from meshtf.ops.slicewise.slicewise import SlicewiseOperation


@language_function
def binary_op_with_broadcasting(
    tf_fn: LocalFunction,
    x1: Operand,
    x2: Operand,
    output_shape: ShapeLike | None = None,
    output_dtype: tf.DType | None = None,
) -> Tensor:
    """An elementwise TensorFlow function of two operands, which are broadcast by name as in `add`.

    Args:
      tf_fn: takes two tf.Tensors whose shapes broadcast against each other as NumPy's do. TensorFlow differentiates it,
        to any order.
      x1: a tensor, or a number, which takes the dtype of the other.
      x2: the same; at least one of the two is a tensor.
      output_shape: the order of the result's dimensions.
      output_dtype: the result's dtype; by default the operands'.

    Raises:
      ShapeError: sizes disagree, or `output_shape` lacks a dimension.
      DtypeError: the dtypes differ.

    Examples:
      >>> mtf.binary_op_with_broadcasting(tf.math.atan2, x, mtf.ones(mesh, "hidden:8"))
      atan2 [batch:4 hidden:8] float32
      >>> mtf.binary_op_with_broadcasting(tf.less, x, 0.5, output_dtype=tf.bool)
      less [batch:4 hidden:8] bool
    """
    operands = check_operands(tf_fn, tensors_of_one_dtype(x1, x2))
    shape = broadcast_shape([x.shape for x in operands], output_shape)
    common = Shape([d for d in shape if any(x.shape.has(d) for x in operands)])
    align = [aligner(x.shape, common) for x in operands]

    def aligned(*slices: tf.Tensor) -> tf.Tensor:
        return tf_fn(*(bring(s) for bring, s in zip(align, slices, strict=True)))

    dtype = operands[0].dtype if output_dtype is None else dtype_of(output_dtype)
    operation = SlicewiseOperation(
        aligned, operands, [(common, dtype)], common.dimension_names, name=name_of(tf_fn, "binary_op")
    )
    return broadcast(operation.outputs[0], shape)
