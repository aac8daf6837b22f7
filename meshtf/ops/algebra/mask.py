"""Masks: zeros in place of elements that must not count, even if these are NaN."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from meshtf.graph.operation import Operation
from meshtf.graph.tensor import Tensor, check_tensor
from meshtf.layout import restricted
from meshtf.ops.algebra.elementwise_operation import broadcasting_kernel
from meshtf.planning.local_work.kept_or_zeros import kept_or_zeros
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Core, Emit, Value
from meshtf.planning.planner import Planner
from meshtf.thresholds import SMALL_ELEMENTS


class MaskOperation(Operation):
    """x where a condition over some of its dimensions holds, and 0 elsewhere, even for NaN.

    A sum pending in x stays pending.
    """

    passes_pending_sums = True
    takes_padding = True
    mapped = "all inputs"

    def __init__(self, x: Tensor, condition: Tensor) -> None:
        super().__init__([x, condition], [(x.shape, x.dtype)], name="mask")

    def gradient(self, grad_ys: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return [MaskOperation(check_tensor(grad_ys[0]), self.inputs[1]).outputs[0], None]

    def lower(self, planner: Planner) -> None:
        (x, condition), (output,) = self.inputs, self.outputs
        # A mask of terms is a term of the masked sum, so the sum over cores can wait.
        held = planner.read_operands_as_they_are(self, fill=None)[0]
        value = held if held.pending else planner.read(x, planner.layouts[output], None)
        is_kept = planner.read(condition, restricted(value.layout, x.shape, condition.shape), None)
        spec = (output.shape, output.dtype, value.layout)
        emit, facts, flops = masking(value, is_kept), WorkFacts(kernel=zero_elsewhere), math.prod(value.slice_shape)
        (masked,) = planner.compute(
            "mask", emit, [value, is_kept], [spec], pending=value.pending, flops=flops, facts=facts
        )
        planner.write(output, masked)


def masking(value: Value, is_kept: Value) -> Emit:
    """Local work that masks a value, given the value and the condition."""
    if math.prod(is_kept.slice_shape) == 1 and math.prod(value.slice_shape) >= SMALL_ELEMENTS:
        return AllOrNothing()
    return broadcasting_kernel(zero_elsewhere, [value.shape, is_kept.shape], value.shape, value.slice_shape)


@dataclasses.dataclass(frozen=True, slots=True)
class AllOrNothing:
    """Masks a slice that has a single condition: it is kept as it is, without a copy, or is all zeros."""

    def __call__(self, core: Core, x: tf.Tensor, is_kept: tf.Tensor) -> tf.Tensor:
        return tf.cond(tf.reshape(is_kept, []), lambda: x, lambda: tf.zeros_like(x))

    def on_processors(self, core: Core, x: tf.Tensor, is_kept: tf.Tensor) -> tf.Tensor:
        return kept_or_zeros(x, is_kept)


def zero_elsewhere(x: tf.Tensor, is_kept: tf.Tensor) -> tf.Tensor:
    """The kernel of masks."""
    return tf.where(is_kept, x, tf.zeros([], x.dtype))
