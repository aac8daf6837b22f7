"""The operation behind every elementwise function: broadcasting by name, one local kernel, no communication."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from meshtf.dimension import Shape, ShapeLike
from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.broadcasting import aligner, broadcast_shape
from meshtf.planning.layouts.padding import Fill
from meshtf.planning.local_work.work_facts import Kernel, WorkFacts
from meshtf.planning.plan import Core
from meshtf.planning.planner import Planner

Gradient: TypeAlias = Callable[..., Sequence[Tensor | None]]
"""A function `gradient(operation, dy)`. It returns each operand's gradient, in the output's shape or the operand's."""


class ElementwiseOperation(Operation):
    """Applies `kernel` to slices that broadcast by name.

    padding: the numbers that padding must hold so that the kernel does not fail; None for any.
    """

    takes_padding = True
    is_cheap = True
    mapped = "by name"

    def __init__(
        self,
        name: str,
        kernel: Kernel,
        inputs: Sequence[Tensor],
        *,
        output_shape: ShapeLike | None = None,
        output_dtype: tf.DType | None = None,
        gradient: Gradient | None = None,
        is_linear: bool = False,
        padding: Fill | None = None,
    ) -> None:
        shape = broadcast_shape([x.shape for x in inputs], output_shape)
        inputs = without_redundant_broadcasts(inputs)
        super().__init__(inputs, [(shape, output_dtype or inputs[0].dtype)], name=name)
        self.kernel = kernel
        self.passes_pending_sums = is_linear
        self._kind = name
        self._gradient = gradient
        self._padding = padding

    @property
    def has_gradient(self) -> bool:
        return self._gradient is not None and super().has_gradient

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        assert self._gradient is not None
        return self._gradient(self, grad_ys[0])

    def lower(self, planner: Planner) -> None:
        output = self.outputs[0]
        layout = planner.layouts[output]
        layouts = [restricted(layout, output.shape, x.shape) for x in self.inputs]
        values = planner.read_operands(self, layouts, self._padding)
        size = layout.slice_shape(output.shape, planner.mesh_shape)
        emit = broadcasting_kernel(self.kernel, [x.shape for x in self.inputs], output.shape, size)
        moves_only = self.kernel is tf.identity
        (value,) = planner.compute(
            self._kind,
            emit,
            values,
            [(output.shape, output.dtype, layout)],
            pending=values[0].pending,
            flops=0 if moves_only else math.prod(size),
            facts=WorkFacts(
                kernel=self.kernel,
                is_view=moves_only and self.inputs[0].shape == output.shape,
                is_cast=isinstance(self.kernel, CastKernel),
            ),
        )
        planner.write(output, value)


def conjugate(x: Tensor) -> Tensor:
    """The complex conjugate; a real tensor stays as it is.

    Gradients are TensorFlow's: dy is multiplied by the conjugate of the derivative.
    """
    if not x.dtype.is_complex:
        return x
    return ElementwiseOperation(
        "conj", tf.math.conj, [x], gradient=lambda op, dy: (conjugate(dy),), is_linear=True
    ).outputs[0]


def without_redundant_broadcasts(inputs: Sequence[Tensor]) -> list[Tensor]:
    """The operands without explicit broadcasts along dimensions that another operand has anyway."""
    result = list(inputs)
    for i, x in enumerate(inputs):
        if not _is_broadcast(x.operation) or x.is_overridden:
            continue
        (source,) = x.operation.inputs
        others = {d.name for j, other in enumerate(result) if j != i for d in other.shape}
        added = {d.name for d in x.shape if not source.shape.has(d.name)}
        # The kernel broadcasts anyway. An explicit broadcast would only take memory.
        if added and added <= others:
            result[i] = source
    return result


def _is_broadcast(operation: Operation) -> bool:
    return isinstance(operation, ElementwiseOperation) and operation.kernel is tf.identity


@dataclasses.dataclass(frozen=True, slots=True)
class ScalarKernel:
    """A function of a slice and a scalar that is known while the graph is built. Equal kernels compare equal."""

    function: Callable[..., tf.Tensor]
    scalar: Any
    dtype: tf.DType

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        return self.function(x, tf.constant(self.scalar, self.dtype))


@dataclasses.dataclass(frozen=True, slots=True)
class CastKernel:
    """Conversion to another element type."""

    dtype: tf.DType

    def __call__(self, x: tf.Tensor) -> tf.Tensor:
        if x.dtype.is_complex and self.dtype == tf.bool:  # a cast would ignore the imaginary part
            return tf.not_equal(x, 0)
        if x.dtype.is_complex and (self.dtype.is_floating or self.dtype.is_integer):
            x = tf.math.real(x)  # a cast would take the real part too, with a warning
        if x.dtype.is_floating and self.dtype.is_integer:
            return _whole_numbers(x, self.dtype)
        return tf.cast(x, self.dtype)


def _whole_numbers(x: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """Floating numbers without their fractions. A number beyond the dtype becomes its nearest end, and NaN becomes 0.

    TensorFlow's result for such numbers depends on the processor. XLA's result is the same as here. Without this
    function, a program's result would depend on which of the two computes it.
    """
    x = tf.cast(x, tf.float32) if x.dtype.size < 4 else x
    nothing, lowest, highest = (tf.constant(number, dtype) for number in (0, dtype.min, dtype.max))
    # An unsigned dtype begins at 0. Numbers above -1 lose their fraction and become 0.
    below = tf.constant(dtype.min if dtype.min else -1, x.dtype)
    above = tf.constant((dtype.max // 2 + 1) * 2.0, x.dtype)  # the power of 2 after the largest number
    is_inside = (x > below) & (x < above)
    whole = tf.cast(tf.where(is_inside, x, tf.zeros([], x.dtype)), dtype)
    return tf.where(is_inside, whole, tf.where(x >= above, highest, tf.where(x <= below, lowest, nothing)))


def broadcasting_kernel(
    kernel: Kernel, shapes: Sequence[Shape], output_shape: Shape, slice_shape: tuple[int, ...]
) -> Callable[..., Any]:
    """`kernel`, applied to slices in the output's order and rank."""
    aligners = [aligner(shape, output_shape) for shape in shapes]

    def emit(core: Core, *slices: tf.Tensor) -> tf.Tensor:
        y = kernel(*(align(x) for align, x in zip(aligners, slices, strict=True)))
        return y if y.shape.as_list() == list(slice_shape) else tf.broadcast_to(y, np.array(slice_shape, np.int32))

    return emit
