"""Reductions that TPUs do not make between cores: the terms are sent, and each core reduces them by itself.

A TPU has no numbers of 64 bits and no complex ones: libtpu makes each of two, and of collectives that reduce takes the
sums alone ("Supported lowering only of Sum all reduce"), and of uint64 not even those. So the maximum of a float64
[batch:8] over four cores is an allgather to [reduced_slices:32], and on each core the maximum over the four. Over n
cores that sends n / 2 times as many bytes, which the report tells. Sums of float64, int64 and complex numbers stay as
they are.

Of sums of such numbers of which each core keeps its block, libtpu takes those of int64 alone. Of others an alltoall
brings each core all terms of its block, which sends as many bytes as the reduce-scatter.
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
    """The plan for XLA's compilers, which are one for virtual TPUs and another for real ones, and run the same."""
    return gathered_reductions(plan) if options.compiles_programs else plan


def gathered_reductions(plan: Plan) -> Plan:
    """The plan as a TPU can run it."""
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
        """All terms on every core."""
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
        """All terms of its block on each core."""
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
        """The slices of `x` in one dimension, those of a group of cores one behind the other."""
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
    """Whether it moves data alone, or libtpu reduces it between cores."""
    step, dtype = collective.step, collective.input.dtype
    if isinstance(step, ReduceScatter):
        return dtype not in _NOT_SCATTERED
    if isinstance(step, AllReduce):
        return dtype != tf.uint64 and (step.reduction == "add" or dtype not in _ONLY_SUMS)
    return True
