"""Replaces reductions between cores that TPUs lack: the cores send their terms, and each core reduces them by itself.

A TPU has no 64-bit and no complex numbers, so libtpu makes each from two numbers. Among reducing collectives of such
numbers it takes only sums ("Supported lowering only of Sum all reduce"), and not even sums of uint64. So the maximum of
a float64 [batch:8] over four cores becomes an allgather to [reduced_slices:32], and on each core the maximum of the
four slices. Over n cores this sends n / 2 times as many bytes, which the report shows. Sums of float64, int64 and
complex numbers stay as they are.

A reduce-scatter leaves each core with its own block of the sum. Among these dtypes libtpu takes it for int64 alone. For
the others an alltoall brings each core all terms of its block. It sends as many bytes as the reduce-scatter.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import Axes, TensorLayout, axes_size
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.collectives.all_to_all import AllToAll
from meshtf.planning.collectives.reduce_scatter import ReduceScatter
from meshtf.planning.local_work.reductions import stacked_reduce
from meshtf.planning.local_work.work_facts import WorkFacts
from meshtf.planning.plan import Collective, Compute, Core, Instruction, Plan, Value, walk, with_nested_changed

_ONLY_SUMS = (tf.float64, tf.int64, tf.complex64, tf.complex128)
_NOT_SCATTERED = (tf.float64, tf.uint64, tf.complex64, tf.complex128)


def gather_reductions(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan for XLA's compilers.

    Virtual and real TPUs have different compilers, and both run the same plan.
    """
    return gathered_reductions(plan) if options.compiles_programs else plan


def gathered_reductions(plan: Plan) -> Plan:
    """Returns the plan as a TPU can run it."""
    first = 1 + max((v.index for i, _ in walk(plan.instructions) for v in i.outputs), default=0)
    changing = _Gathering(plan.mesh_shape, itertools.count(first))
    return dataclasses.replace(plan, instructions=changing.changed(plan.instructions))


@dataclasses.dataclass(frozen=True)
class _Gathering:
    mesh_shape: Shape
    numbers: Iterator[int]

    def changed(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        return tuple(new for i in instructions for new in self._instead(with_nested_changed(i, self.changed)))

    def _instead(self, instruction: Instruction) -> list[Instruction]:
        if not isinstance(instruction, Collective) or _is_taken(instruction):
            return [instruction]
        count = axes_size(instruction.step.axes, self.mesh_shape)
        if count == 1 or not math.prod(instruction.input.slice_shape):
            return [instruction]
        if isinstance(instruction.step, ReduceScatter):
            return self._exchanged(instruction, instruction.step, count)
        return self._gathered(instruction, count)

    def _gathered(self, instruction: Collective, count: int) -> list[Instruction]:
        """Returns instructions that bring all terms to every core, and reduce them there."""
        step, x = instruction.step, instruction.input
        sent = self._flat(x, step.axes)
        (size,), (axes,) = sent.slice_shape, sent.layout.axes
        others = TensorLayout((axes[: len(axes) - len(step.axes)],))
        received = dataclasses.replace(sent, index=next(self.numbers), layout=others, slice_shape=(count * size,))

        def flat(core: Core, s: tf.Tensor) -> tf.Tensor:
            return tf.reshape(s, [size])

        view = Compute(instruction.operation, "reshape", (x,), (sent,), flat, facts=WorkFacts(is_view=True))
        collective = Collective(instruction.operation, AllGather(step.axes, 0), sent, received)
        return [view, collective, self._reduced(instruction, received, count)]

    def _exchanged(self, instruction: Collective, step: ReduceScatter, count: int) -> list[Instruction]:
        """Returns instructions that bring each core all terms of its own block, and reduce them there."""
        x = instruction.input
        sent = self._flat(x, step.axes)
        received = dataclasses.replace(sent, index=next(self.numbers))
        (size,), before = sent.slice_shape, math.prod(x.slice_shape[: step.split_dim])
        facts = WorkFacts(is_view=True) if before == 1 else WorkFacts(only_moves=True)

        def blocks(core: Core, s: tf.Tensor) -> tf.Tensor:
            return tf.reshape(tf.transpose(tf.reshape(s, [before, count, -1]), [1, 0, 2]), [size])

        ordered = Compute(instruction.operation, "reshape", (x,), (sent,), blocks, facts=facts)
        collective = Collective(instruction.operation, AllToAll(step.axes, 0, 0), sent, received)
        return [ordered, collective, self._reduced(instruction, received, count)]

    def _flat(self, x: Value, axes: Axes) -> Value:
        """Returns a value with the slices of `x` in one dimension, where the slices of a group of cores follow one
        another.
        """
        used = tuple(d.name for d in self.mesh_shape if d.name in x.layout.used and d.name not in axes)
        others = tuple(axis for axis in x.pending if axis not in axes)  # sums that wait for more
        size, split = math.prod(x.slice_shape), (*used, *axes)
        shape = Shape([Dimension("reduced_slices", size * axes_size(split, self.mesh_shape))])
        return Value(next(self.numbers), shape, x.dtype, TensorLayout((split,)), others, (size,))

    def _reduced(self, instruction: Collective, terms: Value, count: int) -> Compute:
        y, reduction = instruction.output, instruction.step.reduction
        assert reduction is not None
        size = math.prod(y.slice_shape)

        def reduced(core: Core, s: tf.Tensor) -> tf.Tensor:
            return tf.reshape(stacked_reduce(tf.reshape(s, [count, size]), reduction), y.slice_shape)

        facts, flops = WorkFacts(is_reduction=True), (count - 1) * size
        return Compute(instruction.operation, "reduce", (terms,), (y,), reduced, flops=flops, facts=facts)


def _is_taken(collective: Collective) -> bool:
    """Tells whether the collective only moves data, or libtpu can reduce it between cores."""
    step, dtype = collective.step, collective.input.dtype
    if isinstance(step, ReduceScatter):
        return dtype not in _NOT_SCATTERED
    if isinstance(step, AllReduce):
        return dtype != tf.uint64 and (step.reduction == "add" or dtype not in _ONLY_SUMS)
    return True
