"""Sums gradients over cores in a dtype of the user's choice, whatever dtype the gradients have.

Sums in float32 of bfloat16 gradients keep the digits that a long sum would lose. Sums in bfloat16 of float32 gradients
send half the bytes (Micikevicius et al. 2018). The pass puts a cast before each sum and one after it. No number is
rounded twice: if a sum's terms were rounded just before, or its result is cast just after, the casts in between go.
Work that only moves slices, such as padding, is done in the dtype of the sum.

For example, a kernel [d_model:8 d_ff:16] has gradients in bfloat16, summed in float32. Then (product, allreduce, cast
to float32, update) becomes (product, cast, allreduce in float32, update), and no cast is left behind the sum. With
float32 gradients summed in bfloat16 it becomes (product, cast, allreduce in bfloat16, cast back, update), with half the
bytes.

`trained_updates.py` finds the sums that belong to gradients: it starts at the variables and goes backwards.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
from collections.abc import Collection, Sequence
from typing import TypeGuard

import tensorflow as tf

from meshtf.lowering.passes.pass_options import PassOptions
from meshtf.lowering.passes.updates.trained_updates import leading_to_updates
from meshtf.ops.algebra.elementwise_operation import CastKernel
from meshtf.planning.local_work.work_facts import Kernel, WorkFacts
from meshtf.planning.plan import (
    Collective,
    Compute,
    Instruction,
    Plan,
    Value,
    used_directly,
    walk,
    with_nested_changed,
)


def sum_gradients(plan: Plan, options: PassOptions) -> Plan:
    """Returns the plan in which gradients of trained variables are summed over cores in the dtype that was asked for.

    Losses, metrics, norms and other statistics are summed as before: see `leading_to_updates`. The plan must not be
    fused or in buckets yet.
    """
    dtype = options.gradient_sum_dtype
    if dtype is None:
        return plan
    updates = leading_to_updates(plan, options.trained)
    if not any(_is_sum_to_change(i, dtype) for i in updates):
        return plan
    rewriting = _Rewriting(plan, dtype, updates)
    return rewriting.without_spare(rewriting.rewritten(plan.instructions))


def _is_sum_to_change(instruction: Instruction, dtype: tf.DType) -> bool:
    """Tells whether it is a sum in another dtype. Scalars are never rounded: that would save next to no bytes."""
    if not isinstance(instruction, Collective):
        return False
    own, is_scalar = instruction.input.dtype, not instruction.input.shape.dims
    is_rounded = own.size > dtype.size
    return instruction.step.reduction == "add" and own.is_floating and own != dtype and not (is_scalar and is_rounded)


def _is_cast(instruction: Instruction | None) -> TypeGuard[Compute]:
    return isinstance(instruction, Compute) and instruction.facts.is_cast


def _only_moves(instruction: Instruction | None) -> TypeGuard[Compute]:
    """Tells whether it is local work that only returns elements of its one input, or zeros, whatever the dtype."""
    if not isinstance(instruction, Compute) or len(instruction.inputs) != 1 or len(instruction.outputs) != 1:
        return False
    return instruction.facts.keeps_elements


class _Rewriting:
    """The state of the pass. A value's `double` is the same value in the dtype of the sums, without rounding in
    between.
    """

    def __init__(self, plan: Plan, dtype: tf.DType, updates: Collection[Compute | Collective]) -> None:
        self._plan = plan
        self._dtype = dtype
        self._updates = updates
        self._numbers = itertools.count(1 + max(v.index for i, _ in walk(plan.instructions) for v in i.outputs))
        self._producers = {v: i for i in updates for v in i.outputs}
        self._doubles: dict[Value, Value] = {}
        self._spare: set[Instruction] = set()

    def rewritten(self, instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
        """Returns the instructions with sums in the chosen dtype. Some of them may be unused: `without_spare` removes
        those.
        """
        return tuple(new for i in instructions for new in self._instead_of(with_nested_changed(i, self.rewritten)))

    def without_spare(self, instructions: Sequence[Instruction]) -> Plan:
        """Returns the plan with these instructions, without the replaced ones that nobody uses."""
        every = [i for i, _ in walk(instructions)]
        uses = collections.Counter(v for i in every for v in used_directly(i))
        uses.update([*self._plan.fetches, *(c.value for c in self._plan.checks)])
        unused: set[Instruction] = set()
        for instruction in reversed(every):
            if instruction in self._spare and not any(uses[v] for v in instruction.outputs):
                unused.add(instruction)
                uses.subtract(instruction.inputs)
        return dataclasses.replace(self._plan, instructions=_without(unused, instructions))

    def _instead_of(self, instruction: Instruction) -> list[Instruction]:
        if not isinstance(instruction, Compute | Collective) or instruction not in self._updates:
            return [instruction]
        if isinstance(instruction, Collective) and _is_sum_to_change(instruction, self._dtype):
            before, double = self._exact_double(instruction.input) or self._cast(instruction)
            return [*before, *self._done_on(double, instruction)]
        # The result of a sum stays in the sum's dtype through work that only moves it, up to its first use.
        double = self._doubles.get(instruction.inputs[0]) if len(instruction.inputs) == 1 else None
        if double is None:
            return [instruction]
        # The user casts to that dtype. The sum has it already, with all of its digits.
        if _is_cast(instruction) and instruction.outputs[0].dtype == self._dtype:
            return [_elementwise(instruction, tf.identity, double, instruction.outputs[0])]
        if isinstance(instruction, Collective):
            # Move the double only if it is narrower: a wider copy would cost bytes and give no digits.
            moves = instruction.step.reduction is None and double.dtype.size < instruction.input.dtype.size
        else:
            moves = _only_moves(instruction)
        return self._done_on(double, instruction) if moves else [instruction]

    def _exact_double(self, value: Value) -> tuple[list[Instruction], Value] | None:
        """Returns the double of a value that needs no rounding: a sum's, or the operand of a cast from the chosen
        dtype.

        The list has the instructions to add before it.
        """
        producer = self._producers.get(value)
        if value in self._doubles:
            return [], self._doubles[value]
        if _is_cast(producer) and producer.inputs[0].dtype == self._dtype:
            self._spare.add(producer)
            return [], producer.inputs[0]
        if _only_moves(producer) and (before := self._exact_double(producer.inputs[0])):
            self._spare.add(producer)
            moved = self._moved(producer, before[1])
            return [*before[0], moved], moved.outputs[0]
        return None

    def _cast(self, instruction: Collective) -> tuple[list[Instruction], Value]:
        double = self._value_like(instruction.input)
        return [_elementwise(instruction, CastKernel(self._dtype), instruction.input, double)], double

    def _done_on(self, double: Value, instruction: Compute | Collective) -> list[Instruction]:
        """Returns the instruction on its input's double, and a cast of its result back for readers that need the old
        dtype.
        """
        done, (output,) = self._moved(instruction, double), instruction.outputs
        back = _elementwise(instruction, CastKernel(output.dtype), done.outputs[0], output)
        self._doubles[output] = done.outputs[0]
        self._spare.add(back)
        return [done, back]

    def _moved(self, instruction: Compute | Collective, x: Value) -> Compute | Collective:
        (output,) = instruction.outputs
        if isinstance(instruction, Collective):
            return dataclasses.replace(instruction, input=x, output=self._value_like(output))
        return dataclasses.replace(instruction, inputs=(x,), outputs=(self._value_like(output),))

    def _value_like(self, value: Value) -> Value:
        return dataclasses.replace(value, index=next(self._numbers), dtype=self._dtype)


def _elementwise(instruction: Compute | Collective, kernel: Kernel, x: Value, y: Value) -> Compute:
    """Returns the work that makes y from x by `kernel`, on behalf of the instruction's operation."""
    is_view = kernel is tf.identity
    facts = WorkFacts(kernel=kernel, is_view=is_view, is_cast=not is_view)
    kind = "view" if is_view else "cast"
    return Compute(instruction.operation, kind, (x,), (y,), lambda core, x: kernel(x), facts=facts)


def _without(unused: Collection[Instruction], instructions: Sequence[Instruction]) -> tuple[Instruction, ...]:
    return tuple(
        with_nested_changed(i, lambda inside: _without(unused, inside)) for i in instructions if i not in unused
    )
