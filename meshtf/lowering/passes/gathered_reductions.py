"""Reductions that TPUs do not make between cores: the terms are gathered, and each core reduces them by itself.

A TPU has no numbers of 64 bits and no complex ones: libtpu makes each of two, and of collectives that reduce takes the
sums alone ("Supported lowering only of Sum all reduce"), and of uint64 not even those. So the maximum of a float64
[batch:8] over four cores is an allgather to [reduced_slices:32], and on each core the maximum over the four. Over n
cores that sends n / 2 times as many bytes, which the report tells. Sums of float64, int64 and complex numbers stay as
they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from meshtf.dimension import Dimension, Shape
from meshtf.layout import TensorLayout, axes_size
from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.planning.collectives.all_gather import AllGather
from meshtf.planning.collectives.all_reduce import AllReduce
from meshtf.planning.plan import Collective, Compute, Core, Instruction, Plan, Value, walk, with_nested_changed
from meshtf.planning.reductions import Reduction, stacked_reduce
from meshtf.planning.work_facts import WorkFacts

_ONLY_SUMS = (tf.float64, tf.int64, tf.complex64, tf.complex128)


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
        if not isinstance(instruction, Collective) or not isinstance(instruction.step, AllReduce):
            return [instruction]
        step, x, y = instruction.step, instruction.input, instruction.output
        count, size = axes_size(step.axes, self.mesh_shape), math.prod(x.slice_shape)
        if _is_taken(x.dtype, step.reduction) or count == 1 or not size:
            return [instruction]
        used = tuple(d.name for d in self.mesh_shape if d.name in x.layout.used and d.name not in step.axes)
        others = tuple(axis for axis in x.pending if axis not in step.axes)  # sums that wait for more
        shape = Shape([Dimension("reduced_slices", size * axes_size((*used, *step.axes), self.mesh_shape))])
        one = Value(next(self.numbers), shape, x.dtype, TensorLayout(((*used, *step.axes),)), others, (size,))
        every = Value(next(self.numbers), shape, x.dtype, TensorLayout((used,)), others, (count * size,))

        def flat(core: Core, s: tf.Tensor) -> tf.Tensor:
            return tf.reshape(s, [size])

        def reduced(core: Core, s: tf.Tensor) -> tf.Tensor:
            return tf.reshape(stacked_reduce(tf.reshape(s, [count, size]), step.reduction), y.slice_shape)

        operation, facts = instruction.operation, WorkFacts(is_reduction=True)
        return [
            Compute(operation, "reshape", (x,), (one,), flat, facts=WorkFacts(is_view=True)),
            Collective(operation, AllGather(step.axes, 0), one, every),
            Compute(operation, "reduce", (every,), (y,), reduced, flops=(count - 1) * size, facts=facts),
        ]


def _is_taken(dtype: tf.DType, reduction: Reduction) -> bool:
    """Whether libtpu reduces it between cores."""
    return dtype != tf.uint64 and (reduction == "add" or dtype not in _ONLY_SUMS)
