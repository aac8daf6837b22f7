"""Sums of squares that read their tensor once, and write no squares: what norms of large weights are made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from meshtf.dimension import Shape
from meshtf.graph import Tensor, check_tensor
from meshtf.ops.algebra.arithmetic import multiply
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.reduction import SUM, ReduceOperation


class SumOfSquares(ReduceOperation):
    """The sum of the squares of a real tensor over the dimensions that the output lacks."""

    def __init__(self, x: Tensor, output_shape: Shape, name: str) -> None:
        super().__init__(x, output_shape, SUM, name)
        self.passes_pending_sums = False

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (x,) = self.inputs
        return [multiply(multiply(x, 2.0), check_tensor(grad_ys[0]))]

    @property
    def local(self) -> Callable[[tf.Tensor, Sequence[int]], tf.Tensor]:
        return _local


def _local(x: tf.Tensor, axes: Sequence[int]) -> tf.Tensor:
    if len(axes) == x.shape.rank:
        return 2 * tf.nn.l2_loss(x)
    return tf.reduce_sum(tf.square(x), axes)


def sum_of_squares(x: Tensor, output_shape: Shape, name: str = "sum_of_squares") -> Tensor:
    """The sum of the squares of a real tensor over the dimensions that `output_shape` lacks."""
    if x.shape == output_shape:
        return multiply(x, x)
    # Elementwise work reads a gradient split as its update is: so its norm does not send it a second time.
    read = ElementwiseOperation("read", tf.identity, [x], gradient=lambda _, dy: [dy]).outputs[0]
    return SumOfSquares(read, output_shape, name).outputs[0]
