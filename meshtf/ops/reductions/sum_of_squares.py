"""Euclidean lengths of tensors. They read the tensor once, store no squares, and are right if the dtype can hold them.

The square of 1e20 overflows float32, and the square of 1e-30 is 0. So squares are summed at three scales: of the tensor
made smaller, of the tensor as it is, and of the tensor made larger, all by powers of two. Sums of several tensors can
be added, and so can sums of several cores. The length comes from the scale whose total neither overflows nor vanishes:

    x = 3e20, 4e20      smaller (x / 2^96): 4.0e-17      as it is: inf      larger: inf
    length              sqrt(4.0e-17) * 2^96 = 5e20

Nearly always this is the middle scale, and processors then leave out the other two. Each scale overlaps the next one
so far that the omitted sums would change no digit of the total.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.arithmetic import divide, multiply
from meshtf.ops.algebra.elementwise_operation import ElementwiseOperation
from meshtf.ops.algebra.reduction import SUM, ReduceOperation, reduce_sum
from meshtf.ops.elementwise.comparisons import equal
from meshtf.ops.elementwise.where import where
from meshtf.ops.inputs.constants import constant
from meshtf.planning.layouts.padding import ZEROS
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner
from meshtf.thresholds import SMALL_ELEMENTS

SCALES = Dimension("scales_of_squares", 3)
"""The scales of a sum of squares: of the tensor made smaller, as it is, and made larger."""


@dataclasses.dataclass(frozen=True)
class _Scales:
    """The scales for a dtype, as exponents of two.

    Attributes:
      smaller, larger: the factors of the tensor.
      lowest, highest: the bounds between which the total of the middle scale is used.
      lowest_alone, highest_alone: the bounds between which a sum needs no other scale, whatever it is added to.
    """

    smaller: int
    larger: int
    lowest: int
    highest: int
    lowest_alone: int
    highest_alone: int


_FLOAT32 = _Scales(-96, 80, lowest=-60, highest=126, lowest_alone=-40, highest_alone=64)
_FLOAT64 = _Scales(-700, 600, lowest=-400, highest=1000, lowest_alone=-300, highest_alone=512)


def _scales_of(dtype: tf.DType) -> _Scales:
    return _FLOAT64 if dtype == tf.float64 else _FLOAT32


class SumOfSquares(ReduceOperation):
    """Sums of squares over the dimensions that the output lacks, of a float32 or float64 tensor: [.., scales]."""

    def __init__(self, x: Tensor, output_shape: Shape, name: str) -> None:
        super().__init__(x, output_shape + [SCALES], SUM, name)
        self.passes_pending_sums = False

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        # This is the gradient of the sum at the middle scale, whatever scale was used; see RootOfSquares.
        (x,), dy = self.inputs, check_tensor(grad_ys[0])
        return [multiply(multiply(x, 2.0), reduce_sum(dy, reduced_dim=SCALES))]

    def lower(self, planner: Planner) -> None:
        (x,), (output,) = self.inputs, self.outputs
        layout = planner.layouts[x]
        value = planner.read(x, layout, ZEROS)
        kept = [d for d in x.shape if output.shape.has(d.name)]
        work = SquaresAtScales(
            tuple(i for i, d in enumerate(x.shape) if d not in kept),
            tuple(Shape(kept).axis(d.name) for d in output.shape[:-1]),
        )
        spec = (output.shape, output.dtype, restricted(layout, x.shape, output.shape))
        (result,) = planner.compute(
            "sum_of_squares",
            work,
            [value],
            [spec],
            pending=self.pending_axes(planner.layouts),
            flops=math.prod(value.slice_shape),
            facts=WorkFacts(is_reduction=True),
        )
        planner.write(output, result)


@dataclasses.dataclass(frozen=True)
class SquaresAtScales:
    """A core's sums over some dimensions of its slice, with the other dimensions in a given order."""

    axes: tuple[int, ...]
    permutation: tuple[int, ...]

    def __call__(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        return self._of_all(x, self._sum(x))

    def on_processors(self, core: Core, x: tf.Tensor) -> tf.Tensor:
        """The sums; the two other scales are zeros if the sum does not need them."""
        scales, total = _scales_of(x.dtype), self._sum(x)
        if x.shape.num_elements() < SMALL_ELEMENTS:
            return self._of_all(x, total)
        is_alone = (total >= 2.0**scales.lowest_alone) & (total <= 2.0**scales.highest_alone)
        none = tf.zeros_like(total)
        return tf.cond(
            tf.reduce_all(is_alone), lambda: tf.stack([none, total, none], axis=-1), lambda: self._of_all(x, total)
        )

    def _of_all(self, x: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        scales = _scales_of(x.dtype)
        smaller, larger = (self._sum(_scaled(x, n)) for n in (scales.smaller, scales.larger))
        return tf.stack([smaller, total, larger], axis=-1)

    def _sum(self, x: tf.Tensor) -> tf.Tensor:
        if len(self.axes) == x.shape.rank:
            return 2 * tf.nn.l2_loss(x)
        total = tf.reduce_sum(tf.square(x), self.axes)
        return total if self.permutation == tuple(sorted(self.permutation)) else tf.transpose(total, self.permutation)


def _scaled(x: tf.Tensor, exponent: int) -> tf.Tensor:
    """|x| times a power of two.

    If the factor were a constant, XLA would square it before it multiplies a single element, and the square of 2^80 is
    infinite in float32: the sum for 0 would be NaN.
    """
    factor = tf.constant(2.0**exponent, x.dtype)
    return x * tf.where(x < 0, -factor, factor)


class RootOfSquares(Operation):
    """The root of sums of squares [.., scales].

    Its gradient goes to the sum at the middle scale, where the dtype can hold every factor of the gradient. The
    gradient of a length of 0 is finite, so the gradient of the vector is 0.
    """

    takes_padding = True
    mapped = "by name"

    def __init__(self, sums: Tensor, name: str) -> None:
        super().__init__([sums], [(sums.shape - [SCALES], sums.dtype)], name=name)

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        (sums,), (root,) = self.inputs, self.outputs
        as_it_is = constant(sums.mesh, np.array([0.0, 1.0, 0.0]), [SCALES], sums.dtype)
        divisor = where(equal(root, 0), 1, root)
        return [multiply(divide(multiply(check_tensor(grad_ys[0]), 0.5), divisor), as_it_is, output_shape=sums.shape)]

    def lower(self, planner: Planner) -> None:
        (sums,), (output,) = self.inputs, self.outputs
        layout = planner.layouts[output]
        value = planner.read(sums, restricted(layout, output.shape, sums.shape))
        spec, scales = (output.shape, output.dtype, layout), _scales_of(output.dtype)

        def emit(core: Core, x: tf.Tensor) -> tf.Tensor:
            smaller, total, larger = tf.unstack(x, axis=-1)
            low = tf.sqrt(larger) * tf.constant(2.0**-scales.larger, x.dtype)
            high = tf.sqrt(smaller) * tf.constant(2.0**-scales.smaller, x.dtype)
            beyond = tf.where(total < 2.0**scales.lowest, low, high)  # high if the total is NaN
            is_within = (total >= 2.0**scales.lowest) & (total <= 2.0**scales.highest)
            return tf.where(is_within, tf.sqrt(total), beyond)

        (root,) = planner.compute("root", emit, [value], [spec], flops=math.prod(value.slice_shape))
        planner.write(output, root)


def sum_of_squares(x: Tensor, output_shape: Shape, name: str = "sum_of_squares") -> Tensor:
    """The sums of squares of a float32 or float64 tensor, over the dimensions that `output_shape` lacks.

    Sums of several tensors may be added before `root_of_squares` makes their common length.
    """
    # Elementwise work reads a gradient with its update's split, so the norm does not send it a second time.
    read = ElementwiseOperation("read", tf.identity, [x], gradient=lambda _, dy: [dy]).outputs[0]
    return SumOfSquares(read, output_shape, name).outputs[0]


def root_of_squares(sums: Tensor, name: str = "root_of_squares") -> Tensor:
    """The Euclidean length, from sums of `sum_of_squares`."""
    return RootOfSquares(sums, name).outputs[0]
